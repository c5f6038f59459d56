"""Sections on experiments, each from a small table of its stage."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from attnknn.core.errors import InputError
from attnknn.core.files import write_csv, write_json
from attnknn.report import plots
from attnknn.report.results import Run
from attnknn.report.sections import (
    ablation,
    audit,
    banks,
    examples,
    fields,
    methods,
    neighbours,
    probabilities,
    theory,
    unseen,
)
from attnknn.report.tables import Section, as_frame
from attnknn.report.verdicts import BETTER, SAME, every_claim

SCORE = {"low": 0.2, "high": 0.6}
TEST = {"low": -0.2, "high": -0.1, "errors": 50, "p": 0.0001, "test": "paired bootstrap"}


@pytest.fixture(autouse=True)
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are drawn but not written, which takes longest."""
    monkeypatch.setattr(plots, "as_png", lambda figure: b"")


def a_run(json: dict[str, Any] | None = None, seed: int = 1, **tables: list[dict[str, Any]]) -> Run:
    frames = {name: pd.DataFrame(rows) for name, rows in tables.items()}
    return Run("digits", seed, {"prepare": {"test": 100}, **(json or {})}, frames)


def frame(section: Section, table: str) -> pd.DataFrame:
    return as_frame(next(t for t in (*section.tables, *section.verdicts) if t.name == table))


def scores(**columns: Any) -> list[dict[str, Any]]:
    """A row of each tested metric."""
    return [{**columns, "metric": m, "value": v, **SCORE} for m, v in (("accuracy", 0.9), ("nll", 0.4), ("ece", 0.1))]


def differences(difference: float = -0.15, **columns: Any) -> list[dict[str, Any]]:
    return [{**columns, "metric": m, "difference": difference, **TEST} for m in ("accuracy", "nll", "ece")]


def test_k_of_the_lowest_nll_on_val_and_its_comparison() -> None:
    """The lowest k on a tie; attention at its k against the best opponents at theirs."""
    swept = [
        {"k": k, "sqrt_n": False, "method": m, "metric": "nll", "validation": v, "value": 0.4, **SCORE}
        for m, values in {"uniform": (0.3, 0.2, 0.2), "attention": (0.1, 0.2, 0.3)}.items()
        for k, v in zip((1, 3, 5), values, strict=True)
    ]
    ends = {"difference_low": -0.2, "difference_high": -0.1}
    paired = [{"role": "kNN", "method": "uniform_vector@3", "metric": "nll", "value": 0.4, **SCORE, **ends}]
    paired = [{**row, "difference": -0.15, "errors": 50, "p": 0.0001} for row in paired]
    run = a_run(k_sweep=swept, k_sweep_paired=paired)
    best = neighbours.best_k(neighbours.joined([run], "k_sweep")).set_index("method")["k"]
    assert best.to_dict() == {"uniform": 3, "attention": 1}
    assert not neighbours.k_sweep([a_run(k_sweep=swept)]).figures, "without the tests, which git does not hold"
    section = neighbours.k_sweep([run])
    (row,) = frame(section, "verdicts").to_numpy()
    assert list(row) == ["Uniform kNN + vector scaling", "better: −0.1500 (−0.2000 … −0.1000), p < .001, 50 errors"]
    assert list(frame(section, "by_k")["group"]) == [
        "digits, k 1",
        "digits, k 1",
        *["digits, k 3"] * 2,
        *["digits, k 5"] * 2,
    ]


def test_views_gain_and_attention_against_distance_with_the_same_views() -> None:
    run = a_run(
        tta=[*scores(views=1, method="attention"), *scores(views=4, method="attention")],
        tta_paired=[
            *differences(method="attention", baseline="attention", views=4, baseline_views=1),
            *differences(method="attention", baseline="distance", views=1, baseline_views=1),
        ],
    )
    section = neighbours.tta([run])
    assert set(frame(section, "changes")["metric"]) == {"NLL", "ECE"}
    against = frame(section, "against")
    assert against[["method", "against", "verdict"]].to_numpy().tolist() == [
        ["Attention", "Distance-weighted kNN", BETTER]
    ]


def test_ensembles_over_seeds() -> None:
    """Differences are means over seeds; seeds of other signs give no verdict."""
    runs = [
        a_run(
            seed=seed,
            ensemble=[*scores(variant="k_ensemble", method="attention"), *scores(variant="single", method="attention")],
            ensemble_paired=differences(d, variant="k_ensemble", method="attention", baseline="single"),
        )
        for seed, d in ((1, -0.3), (2, 0.1))
    ]
    table = frame(neighbours.ensemble(runs), "tests").set_index("metric")
    assert table.loc["NLL", "difference"].startswith("−0.1000")
    assert table.loc["NLL", "verdict"] == SAME


def test_profile_shows_indexes_heads_and_lost_accuracy() -> None:
    quantities = [*neighbours._INDEX_COLUMNS]
    run = a_run(
        profile=[
            {"index": i, "quantity": q, "value": 2.0, "low": 1.0, "high": 3.0}
            for i in ("flat_l2", "hnsw")
            for q in quantities
        ],
        profile_heads=[{"head": "attention", "quantity": q, "value": 0.5, **SCORE} for q in neighbours._HEAD_COLUMNS],
        profile_paired=[row for i in ("flat_ip", "hnsw") for row in differences(index=i, method="attention")],
        profile_about=[{"quantity": "k", "value": "50"}],
    )
    section = neighbours.profile([run])
    assert frame(section, "indexes").iloc[1, 1:3].tolist() == ["HNSW", "2 (1 … 3)"]
    assert frame(section, "heads").iloc[0].tolist() == ["digits", "Attention", "0.5", "0.5", "0.5"]
    assert frame(section, "lost")["verdict"].tolist() == [BETTER]
    assert frame(section, "verdicts")["digits: NLL of attention − with exact search"].tolist() == ["HNSW"]


def test_abstention_joins_calibrations_that_differ_by_seed() -> None:
    sets = {"kind": "split", "alpha": 0.1, "coverage": 0.9, "size": 1.2, "worst_class": 0.8}
    runs = [
        a_run(
            seed=seed,
            risk_coverage=[{"method": name, "coverage": c, "risk": c / 10} for c in (0.5, 1.0)],
            selective=[{"method": name, "metric": "aurc", "value": 0.01 * seed, **SCORE}],
            selective_paired=[{"method": "attention", "baseline": name, "metric": "aurc", "difference": -0.1, **TEST}],
            conformal=[{"method": name, **sets}],
        )
        for seed, name in ((1, "distance_vector"), (2, "distance_isotonic"))
    ]
    section = probabilities.selective(runs)
    assert frame(section, "aurc")[["against", "verdict"]].to_numpy().tolist() == [["Distance-weighted kNN", BETTER]]
    assert frame(section, "areas").iloc[0, 2].startswith("0.0150 (± 0.0071")
    assert frame(section, "sets").iloc[0].tolist()[1:3] == ["Distance-weighted kNN", "0.900 (± 0.000)"]


def test_fine_tuning_shows_val_and_test_of_each_form() -> None:
    own = {"best_epoch": 3, "fit_loss": 0.3, "val_nll": 0.35, "val_nll_start": 0.41}
    ends = {"difference": None, "difference_low": None, "difference_high": None}
    less = {"difference": -0.02, "difference_low": -0.03, "difference_high": -0.01}
    table = [*scores(source="head and encoder", **own, **ends), *scores(source="before", **own, **less)]
    section = ablation.finetune([a_run(finetune=table)])
    shown = frame(section, "finetune").iloc[:, 2:].to_numpy().tolist()
    assert shown[0] == ["head and encoder", "0.900", "0.400", "0.350", "0.410", "3", ""]
    assert shown[1][:-1] == ["before", "0.900", "0.400", "0.350", "0.410", "3"]
    assert shown[1][-1] == "−0.0200 (−0.0300 … −0.0100)"
    assert not ablation.finetune([a_run()]).tables


def test_ablation_shows_fit_val_and_test_over_runs_and_no_difference_of_a_head_that_did_not_train() -> None:
    """Errors are those of the worse of two methods: 30 of 100 rows."""
    row = {"group": "without", "variant": "null", "metric": "nll", "reference": "full", "trained": "yes"}
    first = {"fit": 0.2, "validation": 0.3, "value": 0.4, "difference": 0.1, "low": 0.05, "high": 0.15, "p": 0.001}
    second = {"fit": 0.3, "validation": 0.4, "value": 0.6, "difference": 0.3, "low": 0.2, "high": 0.4, "p": 0.003}
    failed = {"variant": "l2", "group": "with", "trained": "did not train"}
    accuracy = {**row, **first, "metric": "accuracy", "value": 0.7}

    def ablated(accuracy: dict[str, Any]) -> Section:
        runs = [
            a_run(seed=seed, ablation=[{**row, **numbers}, {**row, **numbers, **failed}, accuracy])
            for seed, numbers in ((1, first), (2, second))
        ]
        return ablation.ablation(runs)

    lines = frame(ablated(accuracy), "ablation").to_numpy()
    numbers = ["full", "0.250", "0.350", "0.500"]
    expected = "worse: +0.2000 (+0.0500 … +0.4000), p .004, 30 errors"
    assert list(lines[0][1:]) == ["null", *numbers, expected]
    assert list(lines[1][1:]) == ["l2", *numbers, "did not train"]
    assert frame(ablated(accuracy), "verdicts")["verdict"].tolist() == [expected, "did not train"]
    few = frame(ablated({**accuracy, "value": 0.81}), "verdicts")["verdict"]
    assert few[0] == "no verdict: 19 errors: +0.2000 (+0.0500 … +0.4000)"
    untrained = [{**row, **first, "variant": "full", "trained": "kept its start"}, {**row, **first}]
    section = ablation.ablation([a_run(seed=1, ablation=untrained)])
    assert not section.figures, "nothing to draw beside a full head that learned nothing"
    assert frame(section, "ablation").to_numpy()[0][-1] == "full kept its start"
    assert frame(section, "verdicts").to_numpy().tolist() == [["digits", "1 variant", "full kept its start"]]


def test_all_methods_have_a_verdict_beside_their_plot() -> None:
    ends = {"difference_low": -0.2, "difference_high": -0.1, "p": 0.0001}
    tested = [
        {"role": "", "method": m, "metric": "nll", "value": 0.4, **SCORE, **ends, "difference": -0.15, "errors": errors}
        for m, errors in (("new method", 50), ("distance", 19))
    ]
    json = {"prepare": dict.fromkeys(("test", "bank", "fit", "val", "classes"), 100)}
    json |= {"headroom": dict.fromkeys(("oracle_at_1", "oracle_at_5", "oracle_at_k"), 1.0)}
    section = methods.evaluate([a_run(json, intervals=tested)])
    assert len(section.figures) == len(section.verdicts) == 1
    assert frame(section, "verdicts").to_numpy().tolist() == [
        ["Distance-weighted kNN", "no verdict: 19 errors: −0.1500 (−0.2000 … −0.1000)"],
        ["new method", "better: −0.1500 (−0.2000 … −0.1000), p < .001, 50 errors"],
    ]


@pytest.mark.parametrize(("best", "expected"), [(0.3498, "trained"), (0.34995, "kept its start")])
def test_training_shows_whether_the_head_trained(best: float, expected: str) -> None:
    """By at least 1e-4 nats, as `heads.fit.kept_start`."""
    epochs = [{"epoch": e, "fit_loss": 0.4, "val_nll": v} for e, v in enumerate((0.35, best, 0.36))]
    verdicts = frame(methods.training([a_run(attention=epochs)]), "verdicts")
    assert verdicts["verdict"].tolist() == [f"{expected} (0.3500 → {best:.4f}, epoch 1)"]


def claims_of_theory(errors: int = 50, **intervals: tuple[float, float]) -> dict[str, str]:
    """Verdicts on the claims about attention, by claim."""
    values = {
        ("norm", "min"): (1, 1), ("norm", "max"): (1, 1), ("same_order", "test rows"): (1, 1),
        ("best_k", "attention"): (5, 5),
        ("sqrt_n_less_best_other", "attention"): intervals.get("root", (-0.1, 0.1)),
        ("fit_b", "attention"): intervals.get("b", (0.1, 0.2)), ("fit_c", "attention"): intervals.get("c", (0.8, 1.2)),
        ("entropy_auc", "test rows"): intervals.get("entropy", (0.4, 0.6)),
    }  # fmt: skip
    rows = [
        {"quantity": q, "item": i, "value": (low + high) / 2, "low": low, "high": high}
        for (q, i), (low, high) in values.items()
    ]
    json = {"evaluate": {"attention": {"accuracy": 1 - errors / 100}}}
    return frame(theory.theory([a_run(json, theory=rows)]), "claims").set_index("claim")["verdict"].to_dict()


@pytest.mark.parametrize(
    ("claim", "intervals", "expected"),
    [
        ("k = √n is best", {"root": (-0.2, -0.1)}, "supported"),
        ("k = √n is best", {"root": (0.1, 0.2)}, "contradicted"),
        ("k = √n is best", {}, "undecided"),
        ("The error falls as 1/k", {}, "supported"),
        ("The error falls as 1/k", {"b": (-0.2, -0.1)}, "contradicted"),
        ("The error falls as 1/k", {"c": (1.5, 1.9)}, "contradicted"),
        ("The error falls as 1/k", {"c": (0.1, 4.0)}, "undecided"),
        ("Entropy predicts errors", {"entropy": (0.6, 0.7)}, "supported"),
        ("Entropy predicts errors", {"entropy": (0.2, 0.4)}, "contradicted"),
        ("Embeddings have unit length", {}, "supported"),
    ],
)
def test_claims_of_theory_depend_on_the_numbers(claim: str, intervals: dict[str, Any], expected: str) -> None:
    assert claims_of_theory(**intervals)[claim] == expected


def test_claims_of_theory_need_errors() -> None:
    assert claims_of_theory(errors=19)["The error falls as 1/k"] == "no verdict: 19 errors"
    assert claims_of_theory(errors=19)["Embeddings have unit length"] == "supported"


def test_splits_have_no_errors_and_a_family_a_score() -> None:
    row = {"splits": 10, "low": 0.0, "high": 1.0}
    pair = {"method": "attention", "baseline": "distance", "sd": 0.1, **row, "difference": -0.1}
    run = a_run(
        splits=[{"method": m, "metric": "nll", "value": 0.5, "sd": 0.03, **row} for m in ("distance", "attention")],
        splits_paired=[{**pair, "metric": "nll", "p": 0.004}, {**pair, "metric": "ece", "p": 0.9}],
    )
    section = methods.splits([run])
    assert frame(section, "tests")[["p", "verdict"]].to_numpy().tolist() == [[".004", BETTER], [".900", SAME]]
    assert frame(section, "means")["NLL ↓"].tolist() == ["0.500 (± 0.030)"] * 2


def test_calibrations_of_every_method() -> None:
    """Means over seeds."""
    runs = []
    for seed, shift in ((1, -0.1), (2, 0.1)):
        first, second = (
            {m: {"nll": nll + shift, "ece": 0.1} for m, nll in part.items()}
            for part in (
                {"distance": 0.5, "attention": 0.35, "forest": 0.2},
                {"distance_vector": 0.3, "attention_vector": 0.4},
            )
        )
        runs.append(a_run({"evaluate": first | second}, seed))
    columns = {
        "dataset": "digits",
        "condition": "clean",
        "clean": True,
        "ours": "attention",
        "role": "kNN",
        "method": "distance_vector",
    }
    columns |= {"digits": 3, "verdict": BETTER}
    claims = pd.DataFrame([row | columns for row in differences()])
    section = probabilities.calibration(runs, pd.concat([claims, claims.assign(clean=False)]))
    assert frame(section, "verdicts").to_numpy().tolist() == [
        ["Distance + vector scaling", "better: −0.1500 (−0.2000 … −0.1000), p < .001, 50 errors"]
    ], "ECE, on the clean bank"
    table = frame(section, "calibrated_nll").set_index("method")
    assert list(table.columns) == ["group", "none", "vector scaling"]
    assert table.loc["Attention", ["none", "vector scaling"]].tolist() == ["0.350 (± 0.141)", "0.400 (± 0.141)"]
    assert "Random forest" not in table.index, "was not calibrated"


def test_trained_on_wrong_labels_names_labels_and_methods() -> None:
    keys = {"condition": "noise 0.4", "rate": 0.4}
    run = a_run(
        noise_trained=[row for v in ("plain", "cleaned") for row in scores(**keys, variant=v, method="attention")],
        noise_trained_paired=differences(
            **keys, variant="cleaned", method="attention", baseline_variant="cross_entropy_cleaned", baseline="cnn"
        ),
        cleaning=[{**keys, "round": 1, "quantity": "wrong_after", "value": 0.05}],
    )
    section = banks.noise_trained([run])
    assert frame(section, "verdicts").iloc[0].tolist() == [
        "noise 0.4, Accuracy, Attention, cleaned − Plain network, cleaned",
        "worse: −0.1500 (−0.2000 … −0.1000), p < .001, 50 errors",
    ]
    assert frame(section, "paired")["method"].iloc[0] == "Attention, cleaned"
    assert list(frame(section, "methods")["group"]) == ["digits, noise 0.4, as given", "digits, noise 0.4, cleaned"]
    assert "0.050" in frame(section, "cleaning").to_string()
    assert not banks.noise_trained([a_run()]).tables


def test_probe_compares_fields_contrastive_training_and_attention() -> None:
    """Pairs that answer no question are left out."""
    where = {"mode": "full", "readout": "distance", "baseline_readout": "distance"}
    pairs = [("full", "pixels", where), ("full_nce", "full", where), ("full", "sparse", where)]
    pairs += [("full_nce", "full_views", where), ("full_views", "full", where)]
    pairs.append(("pixels", "pixels", {**where, "readout": "attention"}))
    run = a_run(
        probe=scores(mode="full", representation="pixels", readout="distance"),
        probe_paired=[t for r, b, keys in pairs for t in differences(**keys, representation=r, baseline=b)],
    )
    section = fields.probe([run])
    assert frame(section, "field_tests")["read"].tolist() == [
        "field, whole images: kNN by distance",
        "field, whole images + NCE: kNN by distance",
        "field, whole images + NCE: kNN by distance",
        "pixels: kNN, attention",
    ]
    assert len(frame(section, "verdicts")) == 1


def test_examples_show_neighbours_and_confusions(tmp_path: Path) -> None:
    folder = tmp_path / "gallery" / "digits-1"
    folder.mkdir(parents=True)
    neighbour = {"row": 3, "class": "<b>", "weight": 0.5, "distance_weight": 0.004}
    case = {"kind": "wrong", "row": 1, "actual": "<b>", "predicted": "c", "null": 0.1, "rest": 0, "disagreement": 0.5}
    case |= {"top": [{"class": "c", "probability": 0.9}], "neighbours": [neighbour]}
    picture = {**case, "picture": "wrong-0.png"}
    table = {**case, "features": ["age"], "values": [["1.5"], ["2.5"]]}
    write_json(folder / "gallery.json", {"cases": [picture, table]})
    counts = [
        {"method": "attention", "actual": a, "predicted": p, "count": n} for a, p, n in (("b", "b", 8), ("b", "c", 2))
    ]
    run = Run(
        "digits",
        1,
        {"prepare": {"test": 10}},
        {"intervals": pd.DataFrame([{"a": 1}]), "confusion": pd.DataFrame(counts)},
        tmp_path,
    )
    with pytest.raises(InputError, match=r"wrong-0\.png: .*dvc repro --force evaluate@digits-1"):
        examples.examples([run])
    Image.fromarray(np.repeat(np.uint8([0, 255]), 4)[None].repeat(4, 0)).save(folder / "wrong-0.png")
    section = examples.examples([run])
    assert section.html.count("data:image/png") == 2, "the query and its neighbour"
    assert "&lt;b&gt;" in section.html
    assert "<b>Confident error: &lt;b&gt;</b> predicted c" in section.html
    assert ".50 (&lt; .01)" in section.html
    assert "<td>2.5</td>" in section.html
    assert frame(section, "confusions").to_numpy().tolist() == [["digits", "b", "c", "2 of 10"]]


def test_reconstructions_need_their_pictures_only_where_they_are(tmp_path: Path) -> None:
    rows = {
        "field_psnr": [{"mode": "full", "source": "full", "baseline": None, "value": 23.84, "low": 23.0, "high": 24.0}]
    }
    rows["field_training"] = [{"variant": "full", "epoch": 1, "val_psnr": 12.3}]
    tables = {name: pd.DataFrame(table) for name, table in rows.items()}
    run = Run("digits", 1, {"prepare": {"test": 100}}, tables, tmp_path)
    section = fields.field_report([run])
    assert frame(section, "psnr").iloc[0].tolist() == [
        "digits, whole image known",
        "field, whole images",
        "23.84 (23.00 … 24.00)",
    ]
    folder = tmp_path / "field_pictures" / "digits-1"
    write_json(folder / "pictures.json", {"columns": ["full:image"]})
    write_csv(folder / "tsne.csv", [{"representation": "pixels", "x": 0.0, "y": 1.0, "actual": 3}])
    Image.new("L", (4, 4)).save(folder / "reconstructions.png")
    section = fields.field_report([run])
    assert "full:image" in section.html
    assert len(section.figures) == 2


def test_all_labels_wrong_are_in_the_first_table_and_every_method_in_one_of_its_own() -> None:
    """Means over seeds; a claim of seeds of the same sign stands beside them."""
    condition, runs = "noise of all labels 0.4", []
    for seed, nll in ((1, 0.3), (2, 0.5)):
        against = {"method": "uniform", "ours": "attention", "role": "kNN", "errors": 50, "p": 0.0001}
        against |= {"difference": -0.2, "difference_low": -0.3, "difference_high": -0.1}
        own = {"method": "attention", "ours": "attention", "role": "attention"}
        rows = [{**row, **score} for row in (own, against) for score in scores()]
        others = {name: {"accuracy": 0.9, "nll": 9.0} for name in ("kNN", "best attention", "without neighbours")}
        noise = {"wrong": 0.4, "wrong_estimated": 0.38, "transition_error": 0.01, "right_given": 0.6}
        noise |= {"right_corrected": 0.9}
        json = {
            "evaluate": {name: {"accuracy": 0.9, "nll": 0.4, "ece": 0.1} for name in ("attention", "uniform")},
            "noise": {condition: {**others, "attention": {"accuracy": 0.8, "nll": nll}, "label noise": noise}},
        }
        every = [{"condition": condition, "method": "gce-mlp_forward", "accuracy": 0.5, "nll": nll, "ece": 0.1}]
        wrong = [{"condition": condition, **row} for row in rows]
        runs.append(a_run(json, seed, intervals=rows, noise=wrong, noise_methods=every))
    claims = every_claim(runs)
    first, second = as_frame(methods.summary(runs, claims)).to_dict("records")
    assert (first["dataset"], second["dataset"]) == ("digits", "digits, 40 % of all labels wrong")
    assert second["attention"] == "0.800 / 0.400"
    assert second["NLL: attention − best kNN"] == "better: −0.2000 (−0.3000 … −0.1000)"
    section = banks.noise(runs, claims)
    (row,) = frame(section, "noise_methods").to_dict("records")
    assert row["method"] == "MLP, generalised cross-entropy + noise correction"
    assert row[condition] == "0.400"
    assert list(frame(section, "label_noise")["estimated"]) == ["0.380", "0.380"]


def test_new_classes_and_novelty_stand_beside_the_best_others() -> None:
    row = {
        "other": "class_means",
        "new_accuracy": 0.7,
        "old_accuracy": 0.9,
        "loss": 0.01,
        "new_nll": 1.0,
        "old_nll": 0.5,
    }
    row |= {
        "harmonic": 0.79,
        "other_harmonic": 0.75,
        "other_new_nll": 1.2,
        "other_old_nll": 0.6,
        "means_harmonic": 0.75,
    }
    row |= {"balanced_harmonic": 0.81, "again_harmonic": 0.8, "difference": 0.04, "low": 0.01, "high": 0.07, "p": 0.03}
    few = {**row, "difference": 0.0, "low": None, "high": None, "p": None}
    conditions = {"1 rows": few, "20 rows": row}
    own = a_run({"new_classes": {"conditions": conditions}})
    first, last = frame(unseen.new_classes([own, a_run({"new_classes": {"conditions": {}}})]), "new_classes").to_numpy()
    assert list(first[:2]) == ["digits", "1 rows"]
    assert list(last[2:7]) == ["0.700", "0.900", "0.010", "1.000 (1.200)", "0.500 (0.600)"]
    assert list(last[7:]) == [
        "0.790",
        "0.810",
        "0.750",
        "0.750",
        "0.800",
        "class means",
        "+0.040 (+0.010 … +0.070)",
        ".030",
    ]
    assert list(first[-2:]) == ["0.000", ""]
    row = {"other": "vim", "auroc": 0.95, "other_auroc": 0.9, "fpr95": 0.2, "other_fpr95": 0.3, "softmax_auroc": 0.85}
    row |= {"difference": 0.05, "low": 0.01, "high": 0.09, "p": 0.0004, "rejected": 0.05, "rejected_novel": 0.7}
    (one,) = frame(unseen.novelty([a_run({"novelty": {"conditions": {"mixed columns": row}}})]), "novelty").to_numpy()
    assert list(one[1:5]) == ["mixed columns", "0.950 (0.900)", "0.200 (0.300)", "ViM"]
    assert list(one[5:]) == ["0.850", "+0.050 (+0.010 … +0.090)", "< .001", "0.050", "0.700"]
    assert unseen.novelty([a_run()]).tables == []


def test_changing_images_stand_beside_the_best_other() -> None:
    row = {"other": "class_means, decay", "accuracy": 0.8, "nll": 0.5, "last_accuracy": 0.7}
    row |= {f"other_{name}": row[name] - 0.1 for name in ("accuracy", "nll", "last_accuracy")}  # type: ignore[operator]
    row |= {"no labels_accuracy": 0.5, "partial_fit_accuracy": 0.75, "partial_fit, newest_accuracy": 0.6}
    row |= {"difference": 0.1, "low": 0.05, "high": 0.15, "p": 0.02}
    own = a_run({"drift": {"conditions": {"blur, 50 labels": row}}})
    (one,) = frame(unseen.drift([own, a_run({"drift": {"conditions": {}}})]), "drift").to_numpy()
    assert list(one[1:8]) == ["blur, 50 labels", "0.500", "0.750", "0.600", "0.800", "0.700", "class means, decay"]
    assert list(one[8:]) == ["+0.100 (+0.050 … +0.150)", ".020", "0.500 (0.400)", "0.700 (0.600)"]


def test_found_labels_stand_beside_the_best_of_cleanlab() -> None:
    scores = {"average_precision": 0.91, "precision_at_100": 0.8, "f1": 0.7}
    row = {**scores, **{f"other_{name}": value - 0.1 for name, value in scores.items()}}
    row |= {"other": "rbf, self_confidence", "difference": 0.1, "low": 0.05, "high": 0.15, "p": 0.0004}
    row |= {"expected_precision": 0.6, "precision": 0.65, "expected_wrong": 0.2, "wrong": 0.21}
    untested = {**row, "difference": 0.0, "low": None, "high": None, "p": None}
    cleaning = {"accuracy_given": 0.7, "accuracy_cleaned": 0.8, "accuracy_right": 0.82, "cleaning_difference": 0.1}
    cleaning |= {"cleaning_low": 0.05, "cleaning_high": 0.15, "cleaning_p": 0.02}
    conditions = {"symmetric 0.1": {**row, **cleaning}, "instance 0.1": untested}
    section = audit.audit([a_run({"audit": {"rows": 1500, "conditions": conditions}}), a_run(seed=2)])
    first, last = frame(section, "label_issues").to_numpy().tolist()
    assert first[:2] == ["digits, seed 1, 1,500 rows", "symmetric 0.1"]
    assert first[2:5] == ["0.910 (0.810)", "0.800 (0.700)", "0.700 (0.600)"]
    assert first[5:] == ["RBF logistic, self confidence", "+0.100 (+0.050 … +0.150)", "< .001"]
    assert last[-2:] == ["", ""]
    (one,) = frame(section, "cleaning").to_numpy().tolist()
    assert one[1:] == ["0.700", "0.800", "0.820", "+0.100 (+0.050 … +0.150)", ".020"]
    assert frame(section, "expected").to_numpy().tolist()[1][2:] == ["0.600", "0.650", "0.200", "0.210"]
