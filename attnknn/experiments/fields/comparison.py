"""Every representation beside the others, in both modes, by every readout; it ends in plain tables."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from attnknn.core.artifacts import Predictions, Split
from attnknn.core.parallel import run_parallel
from attnknn.encoder.encoder import Encoder
from attnknn.evaluation.evaluate import together
from attnknn.evaluation.paired_tests import TESTED, Pair, Table, intervals_and_tests
from attnknn.experiments.fields.agreement import agreements
from attnknn.experiments.fields.latents import MODES
from attnknn.experiments.fields.readouts import READOUTS, read_off
from attnknn.experiments.fields.representations import ENCODER, PIXELS, Tokens, representation

KNN = "distance"  # the metric view of a representation
PROBES = ("linear_probe", "transformer")  # two views of separability


def _one(make: Callable[[], tuple[list[np.ndarray], Tokens | None]], split: Split, **reading: Any) -> Predictions:
    vectors, tokens = make()
    return read_off(vectors, tokens, split, **reading)


def compare(
    split: Split,
    latents: Path,
    variants: Sequence[str],
    encoder: Encoder,
    places: Mapping[str, Any],
    seed: int,
    workers: int,
    **reading: Any,
) -> Predictions:
    """What each readout says of the test rows from each representation, as `<mode>:<representation>:<readout>`.

    Args:
        latents, encoder, places: of `representation`; share, least, patch.
        workers: see `parallel.run_parallel`.
        reading: of `readouts.read_off`.
    """
    asked = [(mode, name) for mode in MODES for name in (PIXELS, *variants, ENCODER)]
    makers = [partial(representation, split, latents, name, mode, encoder, **places, seed=seed) for mode, name in asked]
    calls = [partial(_one, make, split, seed=seed, **reading) for make in makers]
    made = []
    for (mode, name), found in zip(asked, run_parallel(calls, workers), strict=True):
        made.append(dataclasses.replace(found, methods=tuple(f"{mode}:{name}:{of}" for of in found.methods)))
    return together(*made)


def compared_pairs(methods: Sequence[str]) -> list[Pair]:
    """Who is tested against whom, by each readout: fields against pixels, contrastive against not, sparse against full.

    And attention against distance weighting, representation by representation.
    """
    against = [("full", PIXELS), ("sparse", PIXELS), ("full_nce", PIXELS), ("sparse_nce", PIXELS)]
    against += [("full_nce", "full"), ("sparse_nce", "sparse"), ("sparse", "full")]
    found = [
        (f"{mode}:{name}:{of}", f"{mode}:{other}:{of}") for mode in MODES for of in READOUTS for name, other in against
    ]
    names = dict.fromkeys(method.rpartition(":")[0] for method in methods)
    found += [(f"{name}:attention", f"{name}:distance") for name in names]
    return [pair for pair in found if set(pair) <= set(methods)]


def _named(method: str) -> dict[str, str]:
    return dict(zip(("mode", "representation", "readout"), method.split(":"), strict=True))


def tables(
    found: Predictions, scoring: Mapping[str, Any], seed: int
) -> tuple[dict[str, dict[str, dict[str, dict[str, float]]]], Table, Table, Table]:
    """Scores by mode, representation and readout; the same with intervals; paired tests; and `agreements`.

    Rank correlations are over representations that learnt without labels, so without the encoder.

    Args:
        scoring: bins, resamples, confidence.
    """
    intervals, paired = intervals_and_tests(found, compared_pairs(found.methods), **scoring, seed=seed, wanted=TESTED)
    means: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
    scored, tested = [], []
    for row in intervals:
        of = _named(row.pop("method"))
        scored.append(of | row)
        readouts = means.setdefault(of["mode"], {}).setdefault(of["representation"], {})
        readouts.setdefault(of["readout"], {})[row["metric"]] = row["value"]
    for row in paired:
        other = _named(row.pop("baseline"))
        who = {"baseline": other["representation"], "baseline_readout": other["readout"]}
        tested.append(_named(row.pop("method")) | who | row)
    groups = [(mode, [name for name in means[mode] if name != ENCODER]) for mode in means]
    pairs = [(KNN, probe) for probe in PROBES] + [("attention", PROBES[0]), PROBES]
    agreed = agreements(found, groups, pairs, scoring["resamples"], scoring["confidence"], seed)
    return means, scored, tested, [{"mode": row.pop("group"), **row} for row in agreed]
