"""Split a data set into bank, fit, val and test rows: `python -m stages.prepare DATASET SEED RAW OUT METRICS`."""

from pathlib import Path

from attnknn.core.artifacts import PARTS
from attnknn.core.files import write_json
from attnknn.data.split import prepare
from stages.params import read_params, run


def main(dataset: str, seed: int, raw: Path, out: Path, metrics: Path) -> None:
    """Make the `Split` of DATASET from the files in RAW and save it to OUT, its sizes to METRICS."""
    p = read_params(dataset, "sources", "prepare")
    split = prepare(p.sources, raw, seed, **p.prepare.model_dump())
    if ids := split.schema.get("ids"):
        print(f"{dataset}: left out as ids: {', '.join(ids)}; to keep one, name it in `numeric` or `categories`")
    split.save(out)
    sizes = {name: len(split.rows(part)) for part, name in enumerate(PARTS)}
    write_json(metrics, {"rows": len(split.y), **sizes, "classes": len(split.classes)})


if __name__ == "__main__":
    run(main)
