"""Settings of the experiments. DVC tracks each class by its name, so an edit reruns the stages that read it.

`k` is the number of neighbours that methods are fitted and evaluated with; None takes k_train.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from attnknn.core.config import Block, Count, Name, Positive, Rate, Resamples, Seed, Share, Whole, no_duplicates


class Distinct(Block):
    """A block whose lists name no value twice."""

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        no_duplicates(**{name: value for name, value in self if isinstance(value, list)})
        return self


Kind = Literal["symmetric", "asymmetric", "instance"]


class Peers(Distinct):
    """Other classifiers, each tuned on val: on embeddings, and on a table's own columns."""

    embedding: Annotated[list[Literal["rbf", "mlp", "boosting"]], Field(min_length=1)] = ["rbf", "mlp", "boosting"]

    methods: list[Literal["raw-uniform", "raw-distance", "logistic", "forest", "boosting", "catboost", "xgboost"]] = [
        "raw-uniform", "raw-distance", "logistic", "forest", "boosting",
    ]  # fmt: skip
    tries: Count = 6  # settings that each may try


class KSweep(Distinct):
    ks: Annotated[list[Count], Field(min_length=1)] = [
        1,
        3,
        5,
        10,
        20,
        50,
        100,
        256,
    ]  # and √n/2, √n, 2√n
    resamples: Resamples = 1000


class Noise(Distinct):
    """Wrong labels; at rate 0 they are clean."""

    kinds: Annotated[list[Kind], Field(min_length=1)] = ["symmetric", "asymmetric", "instance"]
    rates: Annotated[list[Rate], Field(min_length=1)] = [0.0, 0.2, 0.4, 0.6]  # see noise_conditions
    # wrong in the bank alone, or also in fit and val rows
    labels: Annotated[list[Literal["bank", "all"]], Field(min_length=1)] = ["bank", "all"]
    repeats: Count = 2  # new wrong labels and a new head each
    k: Count | None = None


class Audit(Distinct):
    """Labels made wrong, to be found."""

    kinds: Annotated[list[Kind], Field(min_length=1)] = ["symmetric", "asymmetric", "instance"]
    rates: Annotated[list[Share], Field(min_length=1)] = [0.1, 0.2, 0.4]
    repeats: Count = 3  # new wrong labels each
    rows: Count = 3000  # at most, drawn at random


class NewClasses(Distinct):
    """Classes that neither encoder nor memory has seen, added by some rows."""

    rows: Annotated[list[Count], Field(min_length=1)] = [1, 5, 20]  # of each new class
    repeats: Count = 3  # other new classes each


class Novelty(Block):
    """Rows of classes that neither encoder nor memory has seen, to be told from usual ones."""

    repeats: Count = 3  # other unknown classes each


class Drift(Distinct):
    """Images that change over time, with labels that come later."""

    labels: Annotated[list[Count], Field(min_length=1)] = [50, 200, 1000]  # in all steps together
    steps: Count = 5
    repeats: Count = 3  # with other test rows in the steps


class Imbalance(Distinct):
    """Rare classes in the bank."""

    kinds: Annotated[list[Literal["long_tail", "step"]], Field(min_length=1)] = ["long_tail", "step"]
    ratios: Annotated[list[Share], Field(min_length=1)] = [0.1, 0.01]  # rows of the rarest class / of the largest
    repeats: Count = 2
    k: Count | None = None


Condition = Annotated[str, Field(pattern=r"^(symmetric|asymmetric|instance|long_tail|step)-0?\.\d+$")]


class TrainCorrupted(Distinct):
    """Encoders and networks trained on wrong labels or rare classes, for the seeds named here."""

    seeds: list[Seed] = []
    conditions: list[Condition] = ["symmetric-0.4", "long_tail-0.1"]
    rounds: Count = 3  # of cleaning labels by neighbours and training again
    # share of train_embedder.epochs for encoders under noise: later epochs memorise wrong labels
    share: Annotated[float, Field(gt=0, le=1)] = 0.34

    @model_validator(mode="after")
    def _valid_rates(self) -> Self:
        for name in self.conditions:
            kind, rate = name.split("-")
            if float(rate) == 0 or (kind == "asymmetric" and float(rate) >= 0.5):
                limit = "below 0.5: above it the wrong label outnumbers the right one" if float(rate) else "above 0"
                raise ValueError(f"conditions: {name}; give a rate {limit}")
        return self


class Tta(Block):
    """Views of each image whose predictions are averaged."""

    flip: bool = True
    crops: Whole = 3  # random crops
    padding: Count = 4  # pixels of reflected padding before a crop


class Ensemble(Distinct):
    ks: Annotated[list[Count], Field(min_length=1)] = [5, 10, 20]  # whose predictions are averaged
    k: Count | None = None


class Ablation(Block):
    """Each part of the head off, added, and alone."""

    repeats: Count = 1  # heads, each from another seed
    hard_weight: Annotated[float, Field(gt=1)] = 3.0  # loss weight of a fit query whose neighbours all disagree
    resamples: Resamples = 1000
    k: Count = 50  # projections of more keys take minutes a head


class EncoderAblation(Distinct):
    """Encoders trained with other settings, for the seeds named here."""

    seeds: list[Seed] = []
    # what differs in train_embedder, {} for those below; a variant that changes nothing is left out
    variants: dict[str, dict[str, Any]] = {}
    table_variants: dict[str, dict[str, Any]] = {
        "no numeric embeddings": {"numeric": {"kind": "none"}},
        "linear numeric embeddings": {"numeric": {"kind": "linear"}},
        "piecewise numeric embeddings": {"numeric": {"kind": "piecewise"}},
        "periodic numeric embeddings": {"numeric": {"kind": "periodic"}},
        "no neighbours in training": {"losses": {"knn": 0.0, "cross_entropy": 1.0}},
        "neighbours in training too": {"losses": {"knn": 0.5, "cross_entropy": 1.0}, "knn": {"candidates": 0.1}},
        "neighbours alone in training": {"losses": {"knn": 1.0, "cross_entropy": 0.0, "supcon": 0.0}},
        "no dropout": {"dropout": 0.0},
    }
    image_variants: dict[str, dict[str, Any]] = {
        "SupCon": {"losses": {"cross_entropy": 0.0, "supcon": 1.0}},
        "Proxy-Anchor": {"losses": {"cross_entropy": 0.0, "proxy_anchor": 1.0}},
        "contrastive": {"losses": {"cross_entropy": 0.0, "contrastive": 1.0}},
        "contrastive, hardest negatives": {
            "losses": {"cross_entropy": 0.0, "contrastive": 1.0},
            "contrastive_negatives": "hardest",
        },
        "neighbours": {"losses": {"cross_entropy": 0.0, "knn": 1.0}},
        "neighbours, hard rows": {"losses": {"cross_entropy": 0.0, "knn": 1.0}, "knn": {"hard_weight": 2.0}},
        "vision transformer": {"encoder": "vit", "lr": 0.001, "shrunk": 0.0, "pretrained": False},
    }

    def variants_for(self, encoder: str) -> dict[str, dict[str, Any]]:
        """The variants for a kind of encoder."""
        return self.variants or (self.table_variants if encoder == "mlp" else self.image_variants)


class Finetune(Distinct):
    """Head and last layers of the encoder fine-tuned together, for the seeds named here."""

    seeds: list[Seed] = []
    layers: Count = 1  # last weight matrices of the encoder
    epochs: Count = 10
    lr: Positive = 0.0001  # of the encoder's layers
    head_lr: Positive = 0.001


class Hnsw(Block):
    hnsw_m: Annotated[int, Field(ge=2)]
    ef_construction: Count
    ef_search: Count


class Ivf(Block):
    ivf_nlist: Whole
    ivf_nprobe: Whole


class Profile(Block):
    """Comparison of indexes on the dataset's embeddings."""

    repeats: Count = 3  # timed rounds, after one that is not timed
    singles: Annotated[int, Field(ge=10)] = 200  # test rows searched one by one in each round
    hnsw: Hnsw = {"hnsw_m": 32, "ef_construction": 200, "ef_search": 64}  # type: ignore[assignment]  # literals, which DVC reads
    ivf: Ivf = {"ivf_nlist": 256, "ivf_nprobe": 16}  # type: ignore[assignment]
    resamples: Resamples = 1000
    k: Count = 50


class Splits(Distinct):
    """Repeated splits of small tables, each with its own training and test, for the datasets named here."""

    datasets: list[Name] = []  # of `datasets`
    count: Annotated[int, Field(ge=2)] = 10
    first: Seed = 0  # seed of the first; settings chosen on some splits can be confirmed on others
    largest: Whole = 5000  # rows; larger tables are not repeated
    refit: bool = True  # once all is tuned, add fit and val rows to the bank, and retrain encoders of folds and peers
    k: Count | None = None


class Theory(Block):
    resamples: Resamples = 1000
    k: Count | None = None


class Explain(Block):
    neighbours: Count = 8
