"""Fit the attention head on fit rows, stopped by the NLL on val rows; and class prototypes alone."""

from attnknn.core.files import atomic_folder
from attnknn.core.progress import epoch_progress
from attnknn.heads.fit import fit_head
from attnknn.heads.prototypes import fit_prototypes
from attnknn.heads.registry import save_head
from pipeline.load import load_spaces
from pipeline.run import Run, main


def train_attention(run: Run) -> None:
    p, spaces, device = run.params, load_spaces(run), run.device
    settings = p.train_attention.model_dump() | {"temperatures": p.tune.temperatures, "priors": p.tune.priors}
    with epoch_progress(run.label, settings["epochs"]) as progress:
        head, history = fit_head(spaces, **settings, seed=run.seed, k_train=p.k_train, device=device, progress=progress)
    with atomic_folder(run.path("models/attention")) as draft:
        save_head(head, draft / "attention")
        save_head(fit_prototypes(spaces, p.tune.ridges, device), draft / "prototypes")
    best = min(history, key=lambda row: row["val_nll"])
    start = {key: head.config[key] for key in ("temperature", "prior")}
    best_epoch = {"best_epoch": best["epoch"], "val_nll": best["val_nll"]}
    run.write_metrics({**best_epoch, "val_nll_start": history[0]["val_nll"], **start})
    run.write_tables(attention=history)


if __name__ == "__main__":
    main(train_attention)
