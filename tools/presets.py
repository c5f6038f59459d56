"""Run the study's six experiments, scaled down, and write docs/results/presets.md: `python -m tools.presets FOLDER`.

Each is one `dvc exp run` on cifar10_jpeg, of the last commit, in a clone in FOLDER. Experiments that FOLDER holds
already are not run again, so an interrupted call continues.
"""

import shlex
import subprocess
import sys
import time
from pathlib import Path

import typer
import yaml

from attnknn.core.errors import InputError, one_line, require
from attnknn.core.files import atomic_file, read_json, write_json
from attnknn.heads.config import Tune
from attnknn.report.names import METRICS, method_name
from attnknn.report.results import Run, read_runs
from attnknn.report.sections.historic import NAMES, SHOWN, historic, read_study, rows_where
from attnknn.report.tables import Cell, Table, as_markdown, fixed, interval
from pipeline.revision import revision

DATASET = "cifar10_jpeg"
PAGE = Path("docs/results/presets.md")
TARGETS = ("evaluate", "tta", "ensemble", "k_sweep", "noise", "imbalance", "theory")
# epochs, images and batch size: what a preset leaves of two cores' 20 minutes, the plain network included
SMALL = {"epochs": 3, "images": 12_000, "batch": 64}
SIZES = {f"experiment{i}": SMALL for i in range(1, 7)} | {"experiment4": {"epochs": 3, "images": 4_000, "batch": 32}}
SEEDS = {"experiment6": 43}
MINUTES = "minutes.json"
OTHERS = {
    "attention_tta": ("tta", "method=attention"),
    "attention_ensemble": ("ensemble", "variant=k_ensemble; method=attention"),
}
EXPERIMENTS = {"experiment1": "1–3", "experiment2": "1–3", "experiment3": "1–3"}  # as the study names them
GAP = "A gap to the network"  # a conclusion that only trained networks can bear on
HEAD = """# The study's experiments, scaled down

`experiment1` to `experiment6` of `presets/`, each run within 20 minutes on two cores, and the numbers that the study
gives for it. Written by `python -m tools.presets`, revision {revision}.

What differs from the study: few images, of cifar10_jpeg instead of CIFAR-10, and so few epochs that the networks are
far from trained; networks from scratch, without ImageNet weights, so with one learning rate for all layers; smaller
batches; bfloat16. **Accuracies are therefore not comparable with the study's**, and a gap to a network that is hardly
trained says nothing of one that is. The study gives one set of numbers for experiments 1 to 3.

What is corrected in all: no query is in its own memory; the head is fitted on rows that the encoder was not trained
on; test rows choose nothing, and the last epoch is kept; every method has a prior mass and is tuned on validation
rows; projections are trained, not the temperature alone; views and averages over k are compared with the same method
without them; kNN may use at most the experiment's k, as attention does. One seed each; 95 % intervals over test rows.

The scores are of methods without calibration; the conclusions compare attention and the best kNN each with the
calibration that validation rows choose, and take an interval with p ≥ .01 as one that holds 0. The prototypes of
experiments 5 and 6 score the query; the study compared each neighbour with that of its class, which is the feature
`class_similarity` here. Three conclusions are not judged: that a learned temperature improves calibration and that
attention adds less than 1 ms a query, since the stages `ablation` and `profile` do not run, and that a gap to the
network is fundamental, since no network is near trained. For 98 % of the accuracy under wrong labels the intervals are
unpaired and, with so few test rows, too wide for a verdict. Experiment 6 is experiment 5 with seed 43; the others have
seed 42. Where kNN is far less accurate than the network, the encoder hardly learned: that column is no evidence.
"""


def changes(preset: str, images: int, epochs: int, batch: int) -> list[str]:
    """Settings that differ from the preset's, as after `-S`."""
    k = yaml.safe_load(Path(f"presets/{preset}.yaml").read_text("utf-8"))["k_eval"]
    encoder = [f"epochs={epochs}", f"validate_every={epochs}", f"batch_size={batch}", "bf16=true"]
    encoder += ["pretrained=false", "lr_factors.backbone=1.0"]
    return [
        f"datasets=[{DATASET}]",
        f"seeds=[{SEEDS.get(preset, 42)}]",
        f"preset={preset}",
        f"datasets.yaml:+{DATASET}.prepare.subset={images}",
        f"+tune.ks={[other for other in Tune().ks if other <= k]}",
        "noise.kinds=[symmetric]",
        "noise.rates=[0.3]",
        "noise.labels=[bank]",
        "imbalance.kinds=[long_tail]",
        "imbalance.ratios=[0.01]",
        f"presets/{preset}.yaml:+tta.flip=true",
        *(f"presets/{preset}.yaml:train_embedder.{change}" for change in encoder),
    ]


def call(*command: str, cwd: Path | None = None) -> None:
    code = subprocess.run(command, cwd=cwd).returncode
    require(code == 0, f"{shlex.join(command)}: exit code {code}; see above. The same call continues")


def run_preset(folder: Path, preset: str) -> None:
    """Run a preset in a clone of its own, unless it has been; DVC's cache is common to all."""
    clone, python = folder / preset, sys.executable
    if (clone / MINUTES).is_file():
        return
    if not clone.is_dir():
        call("git", "clone", "-q", ".", str(clone))
        call(python, "-m", "dvc", "cache", "dir", "--local", str(folder / "cache"), cwd=clone)
    call("git", "checkout", "-q", "--", ".", cwd=clone)
    for path in (*clone.glob(f"plots/*/{DATASET}-*.csv"), *clone.glob(f"metrics/{DATASET}/*/*.json")):
        path.unlink()  # published results, which hold stages that do not run here
    options = [part for change in changes(preset, **SIZES[preset]) for part in ("-S", change)]
    start = time.perf_counter()
    call(python, "-m", "dvc", "exp", "run", "-n", preset, *options, *TARGETS, cwd=clone)
    write_json(clone / MINUTES, {"minutes": (time.perf_counter() - start) / 60})


def ours(run: Run, method: str) -> dict[str, Cell]:
    """Our scores of one of the study's methods; attention has two more names, with views and with several k."""
    table, where = OTHERS.get(method, ("intervals", f"method={method}"))
    rows = rows_where([run], table, where).to_dict("records")
    return {row["metric"]: Cell(fixed(row["value"], 3), interval(row, 3)) for row in rows}


def tables(runs: dict[str, Run], minutes: dict[str, float]) -> list[Table]:
    """Scores beside the study's, and the verdicts on its conclusions."""
    study, lines, sizes = read_study("historic.csv").query("dataset == 'cifar10' and table == 'main'"), [], []
    for preset, run in runs.items():
        own = study[study["experiment"] == EXPERIMENTS.get(preset, preset[-1])]
        names = dict.fromkeys([*own["method"], "cnn"])
        for method in names:
            theirs = own[own["method"] == method].set_index("metric")["value"]
            text = " / ".join(fixed(theirs[m], 4) if m in theirs else "–" for m in SHOWN) if len(theirs) else ""
            cells = ours(run, method)
            lines.append([preset, NAMES.get(method, method_name(method)), text, *(cells.get(m, "") for m in SHOWN)])
        size, prepared = SIZES[preset], run.json["prepare"]
        best = run.json["train_embedder"]
        numbers = [prepared["bank"], prepared["test"], size["epochs"], size["batch"]]
        trained = "kept its start" if run.kept_start else "yes"
        sizes.append([preset, fixed(minutes[preset], 1), *map(str, numbers), fixed(best["val_accuracy"], 3), trained])
    head = ["experiment", "minutes", "bank rows", "test rows", "epochs", "batch", "encoder, val kNN", "head trained"]
    verdicts = {preset: {str(row[0]): row[1] for row in historic([run]).tables[0].rows} for preset, run in runs.items()}
    claims = dict.fromkeys(claim for own in verdicts.values() for claim in own if not claim.startswith(GAP))
    judged = [[claim, *(own.get(claim, "") for own in verdicts.values())] for claim in claims]
    shown = [METRICS[m] for m in SHOWN]
    return [
        Table("sizes", "Size and duration", head, sizes),
        Table("scores", "Scores", ["experiment", "method", f"study: {' / '.join(shown)}", *shown], lines),
        Table("conclusions", "Conclusions", ["the study: our measure (its source)", *runs], judged),
    ]


def presets(folder: Path = typer.Argument(help="Clones and DVC's cache; some GB.")) -> None:
    """Run the study's six experiments, scaled down, and write docs/results/presets.md."""
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        for preset in SIZES:
            run_preset(folder, preset)
        clones = {preset: folder / preset for preset in SIZES}
        runs = {name: read_runs(clone, [DATASET], [SEEDS.get(name, 42)])[0] for name, clone in clones.items()}
        minutes = {name: read_json(clone / MINUTES)["minutes"] for name, clone in clones.items()}
        parts = [f"## {table.caption}\n\n{as_markdown(table)}" for table in tables(runs, minutes)]
        with atomic_file(PAGE) as draft:
            draft.write_text("\n".join([HEAD.format(revision=revision()), *parts]), "utf-8")
    except (InputError, OSError) as error:
        print(f"error: {one_line(error)}", file=sys.stderr)
        raise typer.Exit(2) from None


if __name__ == "__main__":
    typer.run(presets)
