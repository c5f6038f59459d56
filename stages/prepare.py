"""Split a dataset into bank, fit, val and test rows."""

from attnknn.core.artifacts import PARTS, TEST
from attnknn.core.duplicates import duplicate_counts, first_identical
from attnknn.data.near_copies import near_copies
from attnknn.data.split import prepare as split_source
from pipeline.run import Run, main


def prepare(run: Run) -> None:
    split = split_source(run.params.source, run.path("data/raw"), run.seed, **run.params.prepare.model_dump())
    if ids := split.schema.get("ids"):
        print(f"{run.dataset}: left out as ids: {', '.join(ids)}; to keep one, name it in `numeric` or `categories`")
    split.save(run.path("data/split"))
    test = split.part == TEST
    counts = {"rows": len(split.y)} | {name: len(split.rows(part)) for part, name in enumerate(PARTS)}
    counts["classes"] = len(split.classes)
    counts |= duplicate_counts(first_identical(split.x), split.y, test, split.groups)
    run.write_metrics(counts | (near_copies(split.x[test], split.x[~test]) if split.is_image else {}))


if __name__ == "__main__":
    main(prepare)
