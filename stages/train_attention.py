"""Fit the attention heads on fit rows, stopped by the NLL on val rows; and class prototypes alone."""

from attnknn.core.files import atomic_folder
from attnknn.core.progress import epoch_progress
from attnknn.heads.fit import fit_forms
from attnknn.heads.prototypes import fit_prototypes
from attnknn.heads.registry import save_head
from pipeline.load import load_spaces
from pipeline.run import Run, main


def train_attention(run: Run) -> None:
    p, spaces, device = run.params, load_spaces(run), run.device
    settings = p.train_attention.model_dump() | {"temperatures": p.tune.temperatures, "priors": p.tune.priors}
    with epoch_progress(run.label, settings["epochs"]) as progress:
        forms = fit_forms(spaces, **settings, seed=run.seed, k_train=p.k_train, device=device, progress=progress)
    head, history = forms["attention"]
    with atomic_folder(run.path("models/attention")) as draft:
        for name, (form, _) in forms.items():
            save_head(form, draft / name)
        save_head(fit_prototypes(spaces, p.tune.ridges, device), draft / "prototypes")
    best = min(history, key=lambda row: row["val_nll"])
    start = {key: head.config[key] for key in ("temperature", "prior")}
    best_epoch = {"best_epoch": best["epoch"], "val_nll": best["val_nll"], "val_nll_start": history[0]["val_nll"]}
    others = {
        name: {"val_nll": min(row["val_nll"] for row in h)} for name, (_, h) in forms.items() if name != "attention"
    }
    run.write_metrics({**best_epoch, **start, **others})
    run.write_tables(attention=history)


if __name__ == "__main__":
    main(train_attention)
