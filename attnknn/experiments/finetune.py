"""Fine-tune a fitted attention head and the last layers of its encoder together, with a memory refreshed each epoch."""

import copy
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnknn.core.artifacts import FIT, TEST, VAL, Embeddings, Predictions, Split
from attnknn.core.errors import require
from attnknn.encoder.encoder import Encoder, embed, embed_split
from attnknn.evaluation.paired_tests import BESIDE, Table, side_by_side
from attnknn.heads.classify import classify
from attnknn.heads.registry import LearnedHead
from attnknn.neighbours.search import retrieve
from attnknn.neighbours.space import NeighbourBatch
from attnknn.nn.objectives import nll
from attnknn.nn.optim import AdamW

COLUMNS = (*BESIDE, "best_epoch", "fit_loss", "val_nll", "val_nll_start")
HEAD = "attention"


def last_layers(encoder: Encoder, n: int) -> list[nn.Parameter]:
    """Parameters that map x to e, from the n-th last weight matrix on; all where there are fewer, if any."""
    modules = (encoder.backbone, encoder.projection)
    parameters = [p for module in modules for p in module.parameters() if p.requires_grad]
    matrices = [i for i, p in enumerate(parameters) if p.ndim > 1]
    return parameters[matrices[-min(n, len(matrices))] :] if matrices else []


def with_query(batch: NeighbourBatch, z: Float[Tensor, "B D"], metric: str) -> NeighbourBatch:
    """The batch with embeddings of its queries that have a gradient, and their similarities to the stored keys.

    Similarities to regions stay those of the epoch's start.
    """
    keys = batch.require("keys")
    sims = (z[:, None] * keys).sum(2) if metric == "ip" else -(z[:, None] - keys).square().sum(2)
    return replace(batch, query=z, sims=torch.where(torch.isfinite(batch.sims), sims, batch.sims))


def finetune(
    split: Split,
    encoder: Encoder,
    head: LearnedHead,
    k: int,
    search: Mapping[str, Any],
    *,
    layers: int,
    epochs: int,
    lr: float,
    head_lr: float,
    batch_size: int,
    seed: int,
    bf16: bool = False,
) -> list[dict[str, float]]:
    """Minimise the NLL of fit rows by the head and the encoder's last layers; keep the epoch of lowest NLL on val.

    At the start of each epoch all rows but those of test are embedded anew, and their neighbours found among the bank
    rows. Gradients pass through the queries; the memory has none until it is embedded again. The queries are fit rows,
    which are not in the bank and which the encoder has not seen before. The network is in evaluation mode: without
    dropout, and with fixed statistics of batch norm.

    Args:
        head: fitted in the encoder's space; both are changed in place.
        k: neighbours.
        search: sizes, metric, device of `retrieve`.
        layers: number of the encoder's weight matrices to train; 0 trains the head alone.
        lr, head_lr: learning rates of AdamW.
        bf16: see `embed`.

    Returns:
        A row per epoch, 0 being the start: epoch, fit_loss (NaN at 0), val_nll.

    Raises:
        InputError: the loss is not finite.
    """
    device, metric = search["device"], search["metric"]
    search = {**search, "k_max": max(k, *search["sizes"])}
    kept = np.flatnonzero(split.part != TEST)
    x, y, part = (np.asarray(array)[kept] for array in (split.x, split.y, split.part))
    fit_rows, val_rows = (np.flatnonzero(part == p) for p in (FIT, VAL))
    trained = last_layers(encoder, layers) if layers else []
    encoder.eval().requires_grad_(False).to(device)
    for p in trained:
        p.requires_grad_(True)
    groups = [{"params": trained, "lr": lr}, {"params": [p for p in head.to(device).parameters() if p.requires_grad]}]
    optimiser = AdamW(groups, lr=head_lr)
    rng, best, best_state = np.random.default_rng([seed, 1]), math.inf, {}
    torch.manual_seed(seed * 1009)  # dropout of the head
    history, loss, space = [], math.nan, None
    for epoch in range(epochs + 1):
        if trained or space is None:
            z, logits = embed(encoder, x, device, bf16)
            space = retrieve(Embeddings(z, y, part, split.classes, logits), **search)
        probs = classify(head.eval(), space, val_rows, k, device)[np.arange(len(val_rows)), y[val_rows]]
        history.append({"epoch": epoch, "fit_loss": loss, "val_nll": -float(np.log(probs.clip(1e-37)).mean())})
        if history[-1]["val_nll"] < best:
            best = history[-1]["val_nll"]
            best_state = copy.deepcopy({"encoder": encoder.state_dict(), "head": head.state_dict()})
        if epoch == epochs:
            break
        head.train()
        order, loss = rng.permutation(fit_rows), 0.0
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            batch = space.around(rows, k, {*head.needs, "keys"}).to(device)
            z, logits = encoder(torch.from_numpy(x[rows]).to(device))
            batch = with_query(batch, z, metric)
            batch = replace(batch, logits=logits) if "logits" in head.needs else batch
            value = nll(head(batch)[0], torch.from_numpy(y[rows]).to(device))
            optimiser.zero_grad()
            value.backward()
            optimiser.step()
            loss += float(value.detach()) * len(rows) / len(order)
        require(math.isfinite(loss), f"finetune: the loss is {loss} in epoch {epoch + 1}; lower lr ({lr})")
    encoder.load_state_dict(best_state["encoder"])
    head.load_state_dict(best_state["head"])
    return history


def compare_finetuned(
    split: Split,
    encoder: Encoder,
    head: LearnedHead,
    k: int,
    search: Mapping[str, Any],
    scoring: Mapping[str, Any],
    seed: int,
    layers: int,
    **settings: Any,
) -> Table:
    """The head on test rows: fine-tuned with the encoder, trained on as long alone, and as it was.

    Args:
        scoring: bins, resamples, confidence.
        settings: of `finetune`.

    Returns:
        Rows of `COLUMNS`; the first source is tested against the others.
    """
    results, histories = {}, {}
    for source, n, epochs in (("head and encoder", layers, None), ("head alone", 0, None), ("before", 0, 0)):
        own_encoder, own_head = copy.deepcopy((encoder, head))
        own: dict[str, Any] = settings if epochs is None else settings | {"epochs": epochs}
        histories[source] = finetune(split, own_encoder, own_head, k, search, layers=n, seed=seed, **own)
        space = retrieve(embed_split(own_encoder, split, search["device"], settings["bf16"]), **search)
        rows = space.embeddings.rows(TEST)
        probs = classify(own_head, space, rows, k, search["device"])[None]
        results[source] = Predictions(rows.astype(np.int32), split.y[rows], probs, (HEAD,), split.classes)
    table = side_by_side(results, (HEAD,), scoring, seed)
    for row in table:
        history = histories[row["source"]]
        best = min(history, key=lambda r: r["val_nll"])
        row |= {"best_epoch": best["epoch"], "fit_loss": best["fit_loss"], "val_nll": best["val_nll"]}
        row["val_nll_start"] = history[0]["val_nll"]
    return table
