"""Write what a reviewer sees first: means over seeds of attention and its opponents, those chosen by the NLL."""

import pandas as pd

from pipeline.run import Run, main


def summary(run: Run) -> None:
    p, result = run.params, {}
    for dataset in p.datasets:
        files = {seed: run.path("plots/intervals") / f"{dataset}-{seed}.csv" for seed in p.seeds}
        rows = pd.concat([pd.read_csv(file).assign(seed=seed) for seed, file in files.items()])
        roles = rows[rows["role"].notna() & (rows["metric"] == "nll")]
        scored = rows.drop_duplicates(["seed", "method", "metric"])[["seed", "method", "metric", "value"]]
        means = roles[["seed", "role", "method"]].merge(scored).pivot_table("value", "role", "metric")
        knn = roles[(roles["role"] == "kNN") & (roles["ours"] == "attention")]
        ends = knn.agg({"difference": "mean", "difference_low": "min", "difference_high": "max"}).astype(float)
        difference = dict(zip(("difference", "low", "high"), ends, strict=True))
        result[dataset] = means[["accuracy", "nll"]].to_dict("index") | {"nll_attention_minus_kNN": difference}
    run.write_metrics(result)


if __name__ == "__main__":
    main(summary)
