"""Refit and score all methods under conditions of the labels: wrong ones, rare classes."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import softmax
from sklearn.metrics import confusion_matrix

from attnknn.core.artifacts import BANK, FIT, TEST, VAL, Predictions
from attnknn.core.parallel import run_parallel
from attnknn.evaluation.calibration import KINDS, fit_temperature, given_probs
from attnknn.evaluation.evaluate import as_predictions, calibrated, predict_parts, stack_methods, tuned_baselines
from attnknn.evaluation.method import FORWARD, Method
from attnknn.evaluation.metrics import interval
from attnknn.evaluation.opponents import (
    BEST,
    OURS,
    ROLES,
    TUNED,
    UNDER_CONDITIONS,
    WITHOUT,
    compare_with_opponents,
    opponents_over_repeats,
    scores_by_row,
    select,
)
from attnknn.evaluation.paired_tests import TESTED, Table, scores
from attnknn.experiments.forward_networks import FORWARD_NETWORKS, forward_networks
from attnknn.experiments.peers import CLEANED_PEERS, EMBEDDING_PEERS, embedding_peers, fit_and_predict
from attnknn.experiments.refit import Scores, Settings, fit_and_compare
from attnknn.heads.baselines import choices_of_k
from attnknn.heads.fit import fit_forms
from attnknn.heads.label_noise import DOUBT, estimate_label_noise, significantly_above, with_corrected_labels
from attnknn.neighbours.space import EmbeddingSpace, classes_of
from attnknn.nn.linear_probe import with_linear_probe

Condition = Callable[[np.random.Generator], Sequence[EmbeddingSpace]]
PEERS = ("rbf", "mlp")  # of `peers.EMBEDDING_PEERS`; boosting takes as long as all others together
_BOOSTING = {"bank-boosting": EMBEDDING_PEERS["boosting"]}  # on corrected labels: it has no loss to correct


def through_noise(
    spaces: Sequence[EmbeddingSpace], clean: np.ndarray, seed: int, settings: Settings, held_out: bool = False
) -> tuple[Predictions, Predictions, dict[str, float]]:
    """Attention and kNN on corrected labels, and networks, all through the estimated label noise: `<method>_forward`.

    `attention-linear` corrects the linear network fitted through the noise, which is also an opponent.

    Args:
        held_out: see `estimate_label_noise`.

    Returns:
        Predictions of test rows, of their true classes; of val rows, of their given labels, by which methods are
        chosen; and the estimate's quality against the true labels `clean` (N,), which nothing else reads here.
    """
    k = min(settings["k"], *(space.neighbours.ids.shape[1] for space in spaces))
    starts = {name: settings["grids"][name] for name in ("temperatures", "priors")}
    common = {**settings["fitting"], **starts, "k_train": k, "seed": seed, "device": settings["device"]}
    noise = estimate_label_noise(spaces, held_out=held_out, **common)
    t, device = noise.transition, settings["device"]
    corrected = with_corrected_labels(spaces, noise, seed, device)
    networks = [space.embeddings for space in spaces]
    probs, logits = forward_networks(networks, t, seed)
    corrected = [
        dataclasses.replace(s, embeddings=dataclasses.replace(s.embeddings, logits=own))
        for s, own in zip(corrected, logits, strict=True)
    ]
    heads = {name: head for name, (head, _) in fit_forms(corrected, **common, transition=t).items()}
    stored = min(space.neighbours.ids.shape[1] for space in corrected)
    ks = choices_of_k(settings["grids"]["ks"], min(max(settings["grids"]["ks"]), stored))
    knn, _ = tuned_baselines(corrected, ks, **starts, transition=t)
    probs = {**probs, **predict_parts(corrected, {**knn, **heads}, stored, device)}
    for peers, labels in ((CLEANED_PEERS, spaces), (_BOOSTING, corrected)):
        data = [(np.asarray(e.z), np.asarray(s.embeddings.y), e.part) for e, s in zip(networks, labels, strict=True)]
        own, _ = fit_and_predict(data, peers, tries=2, seed=seed, threads=1, train=[BANK], transition=t)
        probs = {**probs, **own}
    shares = corrected[0].shares.numpy()
    y_fit, y_val = (classes_of(spaces, part) for part in (FIT, VAL))
    doubt = DOUBT if noise.evident else 1 / (len(y_val) + 1)
    on_val, on_test = {}, {}
    for name, parts in probs.items():
        logs = [np.log(np.maximum(p, 1e-37, dtype=np.float64)) for p in parts]
        temperatures = (1.0, fit_temperature(logs[0], y_fit, t))
        choices = [[softmax(log_p / x, axis=1) for log_p in logs[1:]] for x in temperatures]
        val, test = min(choices, key=lambda pair: -np.log(given_probs(pair[0], y_val, t)).mean())
        val, test = ((1 - doubt) * p + doubt * shares for p in (val, test))
        on_val[f"{name}_{FORWARD}"] = (val @ t).astype(np.float32)
        on_test[f"{name}_{FORWARD}"] = test.astype(np.float32)
    rows = np.flatnonzero(np.asarray(spaces[0].embeddings.part) != TEST)
    y = np.asarray(spaces[0].embeddings.y)
    truth = confusion_matrix(clean[rows], y[rows], labels=range(len(t)), normalize="true")
    errors = np.abs(truth - t).mean(1)
    resampled = errors[np.random.default_rng(seed).integers(len(t), size=(1000, len(t)))].mean(1)
    bank = spaces[0].embeddings.rows(BANK)
    right = {"given": spaces[0], "corrected": corrected[0]}
    about = {"wrong": float((y[rows] != clean[rows]).mean()), "wrong_estimated": noise.wrong}
    about |= {"transition_error": float(errors.mean())}
    about |= dict(zip(("transition_error_low", "transition_error_high"), interval(resampled, 0.95), strict=True))
    about |= {
        f"right_{name}": float((np.asarray(s.embeddings.y)[bank] == clean[bank]).mean()) for name, s in right.items()
    }
    test, val = as_predictions(spaces[:1], TEST, on_test), as_predictions(spaces, VAL, on_val)
    return test, val, about


def _corrected_unless_worse(test: Predictions, val: Predictions) -> tuple[Predictions, Predictions]:
    """Keep, of each method with and without `_forward`, the corrected one unless it is `significantly_above` on val.

    Where a network is corrected, classifiers without neighbours that do not see through wrong labels are no opponents.
    """
    losses = {name: -np.log(p[np.arange(len(val.y)), val.y]) for name, p in zip(val.methods, val.probs, strict=True)}
    names = [name for name in val.methods if Method.parse(name).calibration != FORWARD]
    for name in [name for name in val.methods if name not in names]:
        base = Method.parse(name).base
        plain = [n for n in names if Method.parse(n).base == base]
        if not plain or not significantly_above(losses[name], min((losses[n] for n in plain), key=np.mean)):
            names = [n for n in names if n not in plain] + [name]
    corrected, correctable = (
        {Method.parse(name).base for name in kept if Method.parse(name).calibration == FORWARD}
        for kept in (names, val.methods)
    )
    if corrected & set(FORWARD_NETWORKS):
        uncorrected = set(ROLES[WITHOUT]) - correctable
        names = [name for name in names if Method.parse(name).base not in uncorrected]
    return select(test, names), select(val, names)


def _refit_once(
    condition: Condition, repeat: int, scoring: Settings, seed: int, clean: np.ndarray | None, settings: Settings
) -> tuple[Table, dict[tuple[str, str], np.ndarray], dict[str, float], Table]:
    """Attention and its opponents with one bank and one head under one condition.

    The true labels `clean` (N,) tell where held-out labels are as wrong as the bank's, or none is wrong: there methods
    that see through wrong labels take part.

    The encoder's linear head was trained on the unmodified labels, which no method may read here: a logistic regression
    on the modified bank takes its place.
    """
    spaces = [
        dataclasses.replace(space, embeddings=with_linear_probe(space.embeddings))
        for space in condition(np.random.default_rng([seed, repeat]))
    ]
    # Another head than that of `train_attention`, also for seed 0.
    seed_of_repeat = 100 * seed + repeat + 1
    result = fit_and_compare(spaces, seed=seed_of_repeat, **settings)
    embeddings = [space.embeddings for space in spaces]
    alike = clean is not None and (labels_differ(spaces[0], clean, VAL) or not labels_differ(spaces[0], clean, BANK))
    peers, _ = embedding_peers(embeddings, PEERS, held_out=not alike, tries=3, seed=seed_of_repeat, threads=1)
    test, val = result.test, result.val
    if peers:  # none where a fold's bank has one class only
        others = calibrated(peers, spaces, settings["grids"]["ridges"], KINDS)
        test, val = stack_methods(test, others[0]), stack_methods(val, others[1])
    about: dict[str, float] = {}
    methods: Table = []
    if clean is not None and alike:
        through, through_val, about = through_noise(spaces, clean, seed_of_repeat, settings)
        test, val = stack_methods(test, through), stack_methods(val, through_val)
        names = [name for name in test.methods if Method.parse(name).calibration in ("", FORWARD)]
        scored = scores(select(test, names), scoring["bins"])
        methods = [{"method": name, **{metric: own[metric] for metric in TESTED}} for name, own in scored.items()]
        test, val = _corrected_unless_worse(test, val)
    others = [name for name in test.methods if name in TUNED]
    table = compare_with_opponents(test, val, **scoring, seed=seed, metric_names=UNDER_CONDITIONS, others=others)
    return table, scores_by_row(test, (row["method"] for row in table)), about, methods


def labels_differ(space: EmbeddingSpace, clean: np.ndarray, part: int) -> bool:
    """Whether labels of a part are not the clean ones (N,)."""
    rows = space.embeddings.rows(part)
    return bool((np.asarray(space.embeddings.y)[rows] != clean[rows]).any())


def refit_and_score(
    conditions: Mapping[str, Condition],
    repeats: int,
    scoring: Settings,
    seed: int,
    progress: Callable[..., Iterable[Any]] = lambda results, **_: results,
    workers: int = 1,
    clean: np.ndarray | None = None,
    **settings: Any,
) -> tuple[dict[str, Scores], Table, Table]:
    """Refit and score under each condition, `repeats` times with a new bank and a new head.

    Args:
        conditions: by name, a function from a random generator to the modified spaces.
        scoring: bins, resamples, confidence.
        workers: see `parallel.run_parallel`.
        clean: true labels (N,) of the main space, where conditions may change those of fit and val rows; adds the
            quality of the estimated label noise to the scores.
        settings: of `fit_and_compare`.

    Returns:
        Scores by condition, role and tested metric; rows of condition and of `opponents.COLUMNS`; and, with `clean`,
        rows of condition, method and tested metrics, of all methods without other calibration than that through T. All
        are means over repeats, see `opponents.opponents_over_repeats`.
    """
    keys = [(name, repeat) for name in conditions for repeat in range(repeats)]
    calls = [partial(_refit_once, conditions[name], repeat, scoring, seed, clean, settings) for name, repeat in keys]
    by_condition: dict[str, list[Any]] = {name: [] for name in conditions}
    noise: dict[str, list[dict[str, float]]] = {name: [] for name in conditions}
    all_methods: Table = []
    results = progress(run_parallel(calls, workers), total=len(calls))
    for (name, _), (rows, by_row, about, methods) in zip(keys, results, strict=True):
        by_condition[name].append((rows, by_row))
        noise[name] += [about] * bool(about)
        all_methods += [{"condition": name, **row} for row in methods]
    table: Table = []
    for name, runs in by_condition.items():
        combined = opponents_over_repeats([run[0] for run in runs], [run[1] for run in runs], scoring["confidence"])
        table += [{"condition": name, **row} for row in combined]
    means: dict[str, Scores] = {}
    for row in [row for row in table if row["role"] and row["metric"] in TESTED]:
        if row["ours"] != OURS and row["role"] != BEST:
            continue
        means.setdefault(row["condition"], {}).setdefault(row["role"], {})[row["metric"]] = row["value"]
    for name, runs in noise.items():
        if runs:
            means[name]["label noise"] = {key: float(np.mean([run[key] for run in runs])) for key in runs[0]}
    if all_methods:
        by_method = pd.DataFrame(all_methods).groupby(["condition", "method"], sort=False).mean()
        all_methods = [dict(row) for row in by_method.reset_index().to_dict("records")]  # type: ignore[misc]
    return means, table, all_methods
