"""Split a dataset into bank, fit, val and test rows."""

from attnknn.core.artifacts import PARTS, TEST
from attnknn.core.duplicates import duplicate_counts, first_identical
from attnknn.data.split import prepare as split_source
from pipeline.run import Run, main


def prepare(run: Run) -> None:
    split = split_source(run.params.source, run.path("data/raw"), run.seed, **run.params.prepare.model_dump())
    if ids := split.schema.get("ids"):
        print(f"{run.dataset}: left out as ids: {', '.join(ids)}; to keep one, name it in `numeric` or `categories`")
    split.save(run.path("data/split"))
    sizes = {name: len(split.rows(part)) for part, name in enumerate(PARTS)}
    duplicates = duplicate_counts(first_identical(split.x), split.y, split.part == TEST)
    run.write_metrics({"rows": len(split.y), **sizes, "classes": len(split.classes), **duplicates})


if __name__ == "__main__":
    main(prepare)
