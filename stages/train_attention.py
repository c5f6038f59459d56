"""Fit the attention head on fit rows; stop early by the NLL on val rows. Beside it, class prototypes alone."""

from pathlib import Path

from tqdm import tqdm

from attnknn.device import use_device
from attnknn.files import new_folder, write_csv, write_json
from attnknn.fitting import fit_head
from attnknn.heads import PROTOTYPES_ALONE
from attnknn.neighbourhood import Retrieved
from stages.params import read_params, run


def main(
    dataset: str, seed: int, embeddings: Path, neighbours: Path, evidence: Path, out: Path, metrics: Path, curve: Path
) -> None:
    """Read EMBEDDINGS, NEIGHBOURS, EVIDENCE; write the heads to OUT, METRICS and the training CURVE."""
    p = read_params(dataset, "train_attention", "tune", "k_train", "device", "threads")
    t = p.train_attention
    device = use_device(p.device, p.threads)
    retrieved = Retrieved.load(embeddings, neighbours, evidence)
    with tqdm(
        total=t.epochs * t.restarts, desc=f"train_attention {dataset}/{seed}", unit="epoch", delay=2, disable=None
    ) as bar:

        def progress(row: dict[str, float]) -> None:
            bar.update()
            bar.set_postfix(val_nll=f"{row['val_nll']:.4f}")

        def fit(parts: dict[str, object]):  # noqa: ANN202
            return fit_head(
                retrieved,
                [retrieved],
                **t.model_dump(exclude={"head"}),
                parts=parts,
                k_train=p.k_train,
                temperatures=p.tune.temperature,
                priors=p.tune.prior,
                seed=seed,
                device=device,
                progress=progress,
            )

        head, history = fit(t.head.model_dump())
        alone, _ = fit(PROTOTYPES_ALONE)
    best = min(history, key=lambda row: row["val_nll"])
    with new_folder(out) as draft:
        head.save(draft / "attention")
        alone.save(draft / "prototypes")
    start = {key: head.config[key] for key in ("temperature", "prior")}
    ends = {key: best[key] for key in ("restart", "epoch", "val_nll")}
    write_json(metrics, {**ends, "val_nll_start": history[0]["val_nll"], **start})
    write_csv(curve, history)


if __name__ == "__main__":
    run(main)
