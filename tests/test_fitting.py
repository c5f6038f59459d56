"""The head's loop: on fit rows, stopped by val rows, blind to the rest."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from attnknn.artifacts import BANK, FIT, TEST, VAL, Embeddings, Neighbours
from attnknn.classify import classify
from attnknn.errors import InputError
from attnknn.fitting import fit_head
from attnknn.heads import Attention, Distance
from attnknn.tuning import tune_distance
from attnknn.votes import class_shares
from data import blobs, embedded, searched

SETTINGS: dict[str, Any] = {
    "k_train": 20,
    "epochs": 15,
    "batch_size": 32,
    "lr": 0.01,
    "weight_decay": 0.01,
    "patience": 15,
    "temperatures": [0.05, 0.2, 0.5, 1.0],
    "priors": [0.001, 0.03, 0.1],
    "seed": 3,
}


@pytest.fixture(scope="module")
def data() -> tuple[Embeddings, Neighbours]:
    embeddings = embedded(blobs(360, noise=1.5))
    return embeddings, searched(embeddings)


def fit(data: tuple[Embeddings, Neighbours], **changes: Any) -> tuple[Attention, list[dict[str, float]]]:
    return fit_head(*data, **{**SETTINGS, **changes})


def bytes_of(head: Attention) -> bytes:
    return b"".join(t.numpy().tobytes() for t in head.state_dict().values())


def relabelled(data: tuple[Embeddings, Neighbours], part: int) -> tuple[Embeddings, Neighbours]:
    y = np.array(data[0].y)
    at = data[0].part == part
    y[at] = np.random.default_rng(0).permutation(y[at])
    return dataclasses.replace(data[0], y=y), data[1]


def nll(head: Any, data: tuple[Embeddings, Neighbours], part: int) -> float:
    rows = data[0].rows(part)
    probs = classify(head, *data, rows, 20)
    return -float(np.log(probs[np.arange(len(rows)), data[0].y[rows]]).mean())


def test_it_starts_at_the_best_distance_weighting_of_k_train(data: tuple[Embeddings, Neighbours]) -> None:
    rows = data[0].rows(VAL)
    ids, sims = data[1].of(rows, 20)
    y = data[0].y
    shares = class_shares(y[data[0].rows(BANK)], 3)
    tuned = tune_distance(sims, y[ids], y[rows], shares, [20], SETTINGS["temperatures"], SETTINGS["priors"])
    _, history = fit(data, epochs=1)
    assert history[0]["val_nll"] == pytest.approx(nll(Distance(**tuned), data, VAL), abs=1e-5)  # type: ignore[arg-type]


def test_it_learns_and_keeps_the_epoch_of_lowest_validation_nll(data: tuple[Embeddings, Neighbours]) -> None:
    head, history = fit(data)
    assert history[-1]["fit_nll"] < history[0]["fit_nll"] - 0.02
    best = min(row["val_nll"] for row in history)
    assert nll(head, data, VAL) == pytest.approx(best, abs=1e-5)
    assert best <= history[0]["val_nll"]


def test_it_overfits_32_rows(data: tuple[Embeddings, Neighbours]) -> None:
    rows = data[0].rows(FIT)
    part = np.array(data[0].part)
    part[rows[32:]] = TEST
    small = dataclasses.replace(data[0], part=part), data[1]
    _, history = fit(small, epochs=150, patience=150, lr=0.03, weight_decay=0.0)
    assert history[-1]["fit_nll"] < 0.3 * history[0]["fit_nll"]


def test_the_same_seed_gives_the_same_bytes(data: tuple[Embeddings, Neighbours]) -> None:
    assert bytes_of(fit(data)[0]) == bytes_of(fit(data)[0])


def test_fault_3_it_is_fitted_on_fit_rows(data: tuple[Embeddings, Neighbours]) -> None:
    """Other labels of the fit rows make another head; bank rows are not even among the queries it can look up."""
    assert bytes_of(fit(relabelled(data, FIT))[0]) != bytes_of(fit(data)[0])
    embeddings, neighbours = data
    held_out = np.isin(neighbours.rows, np.concatenate([embeddings.rows(FIT), embeddings.rows(VAL)]))
    assert not np.isin(embeddings.rows(BANK), neighbours.rows).any()
    only = Neighbours(*(np.asarray(a)[held_out] for a in (neighbours.rows, neighbours.ids, neighbours.sims)), "l2")
    assert bytes_of(fit((embeddings, only))[0]) == bytes_of(fit(data)[0])


def test_fault_4_test_rows_change_nothing(data: tuple[Embeddings, Neighbours]) -> None:
    assert bytes_of(fit(relabelled(data, TEST))[0]) == bytes_of(fit(data)[0])


def test_patience_stops_it(data: tuple[Embeddings, Neighbours]) -> None:
    _, history = fit(data, lr=0.3, epochs=100, patience=3)
    best = min(history, key=lambda row: row["val_nll"])
    assert history[-1]["epoch"] == best["epoch"] + 3 < 100


def test_k_train_above_what_is_stored(data: tuple[Embeddings, Neighbours]) -> None:
    with pytest.raises(InputError, match="k_train: 21 is above the 20"):
        fit(data, k_train=21)


def test_under_inner_product_it_starts_there_too(data: tuple[Embeddings, Neighbours]) -> None:
    neighbours = searched(data[0])
    sims = 1 + neighbours.sims / 2  # of unit vectors
    _, history = fit((data[0], dataclasses.replace(neighbours, sims=sims, metric="ip")), epochs=1)
    assert history[0]["val_nll"] == pytest.approx(fit(data, epochs=1)[1][0]["val_nll"], abs=1e-4)
