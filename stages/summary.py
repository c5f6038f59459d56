"""Write what a reviewer sees first: means over seeds of attention, the best kNN baseline and the plain network."""

from typing import Any

import pandas as pd

from pipeline.run import Run, main

ROLES = {"baseline": ["uniform", "distance"], "network": ["cnn"]}  # of each the best on val rows, calibrated or not


def summary(run: Run) -> None:
    p, result = run.params, {}
    for dataset in p.datasets:
        intervals, validation, paired = (
            pd.concat(
                pd.read_csv(run.path(f"plots/{name}") / f"{dataset}-{seed}.csv", keep_default_na=False, na_values=[""])
                for seed in p.seeds
            )
            for name in ("intervals", "validation", "paired")
        )
        scores, on_val = (rows.pivot_table("value", "method", "metric") for rows in (intervals, validation))
        bases = on_val.index.str.partition("_").get_level_values(0)
        best: dict[str, Any] = {role: on_val["nll"][bases.isin(names)].idxmin() for role, names in ROLES.items()}
        methods = {"attention": "attention"} | best
        values = {role: scores.loc[name, ["accuracy", "nll", "ece"]].to_dict() for role, name in methods.items()}
        rows = paired[(paired["method"] == "attention") & (paired["baseline"] == best["baseline"])]
        ends = rows[rows["metric"] == "nll"].agg({"difference": "mean", "low": "min", "high": "max"})
        result[dataset] = values | {"nll_attention_minus_baseline": ends.astype(float).to_dict()}
    run.write_metrics(result)


if __name__ == "__main__":
    main(summary)
