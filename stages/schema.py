"""The shape of params.yaml: every key, its type, and what values are possible.

No value lives here. Like params.py, it can refuse a value but never alter one, so no stage depends on it.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Count = Annotated[int, Field(ge=1)]
Whole = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(gt=0, lt=1)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]  # what is derived of it must stay below 2⁶³, and folds take it as it is
Rate = Annotated[float, Field(ge=0, lt=1)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_]+$")]


class Block(BaseModel):
    """A block of settings that allows no unknown key and no silent conversion."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Prepare(Block):
    test: Share
    val: Share
    fit: Share
    subset: Whole
    numeric: Literal["standard", "quantile"]

    @model_validator(mode="after")
    def _leave_a_bank(self) -> "Prepare":
        if self.fit + self.val >= 1:
            raise ValueError(f"fit {self.fit} + val {self.val} leave no rows for the bank; their sum must be below 1")
        return self


class Augment(Block):
    crop: Whole
    flip: bool
    jitter: Rate
    rotate: Annotated[float, Field(ge=0, le=180)]
    cutout: Whole


class Losses(Block):
    cross_entropy: NonNegative
    supcon: NonNegative
    proxy_anchor: NonNegative
    contrastive: NonNegative
    knn: NonNegative
    entropy: NonNegative
    calibration: NonNegative

    @model_validator(mode="after")
    def _learn_something(self) -> "Losses":
        if self.cross_entropy + self.supcon + self.proxy_anchor + self.contrastive + self.knn == 0:
            raise ValueError(
                "nothing learns the classes; "
                "give cross_entropy, supcon, proxy_anchor, contrastive or knn a weight above 0"
            )
        return self


class Knn(Block):
    candidates: Annotated[float, Field(ge=0, le=1)]
    k: Count
    temperature: Positive
    prior: Share
    refresh: Count
    momentum: Annotated[float, Field(ge=0, le=1)]
    hard_weight: Annotated[float, Field(ge=1)]
    bins: Annotated[int, Field(ge=2)]
    sharpness: Positive


class Numeric(Block):
    kind: Literal["none", "linear", "periodic", "piecewise"]
    dim: Count
    frequencies: Count
    scale: Positive
    bins: Annotated[int, Field(ge=2)]


class LrFactors(Block):
    backbone: NonNegative
    projection: NonNegative
    knn: NonNegative


class Muon(Block):
    lr: NonNegative
    momentum: Rate


class Restarts(Block):
    period: Whole
    factor: Count


class TrainEmbedder(Block):
    encoder: Literal["convnet", "mlp", "resnet18", "resnet50"]
    pretrained: bool
    widths: list[Count]
    depth: Count
    embed_dim: Whole
    dropout: Rate
    numeric: Numeric
    flip_average: bool
    epochs: Count
    batch_size: Annotated[int, Field(ge=2)]
    lr: Positive
    weight_decay: NonNegative
    muon: Muon
    decay: Literal["cosine", "linear"]
    warmup: Rate
    look_ahead: Whole
    grad_clip: Positive
    validate_every: Count
    k_val: Count
    losses: Losses
    label_smoothing: Rate
    supcon_temperature: Positive
    proxy_margin: NonNegative
    proxy_alpha: Positive
    contrastive_margin: Positive
    knn: Knn
    lr_factors: LrFactors
    restarts: Restarts
    augment: Augment
    mixup: NonNegative
    bf16: bool
    compile: bool

    @model_validator(mode="after")
    def _go_together(self) -> "TrainEmbedder":
        if not self.widths and self.encoder == "convnet":
            raise ValueError("widths: none, and the convnet needs a width for each of its groups; give some")
        if self.mixup and self.losses.calibration:
            raise ValueError(
                f"mixup {self.mixup} gives a row two labels, and losses.calibration {self.losses.calibration} "
                "needs one; set either to 0"
            )
        if self.decay == "linear" and self.restarts.period:
            raise ValueError(
                f"decay linear goes down once, and restarts.period {self.restarts.period} asks for more; "
                "set decay to cosine or restarts.period to 0"
            )
        votes = self.losses.knn or self.losses.entropy
        if self.mixup and self.knn.candidates:
            raise ValueError(
                f"mixup {self.mixup} mixes rows, and knn.candidates {self.knn.candidates} are rows as they are; "
                "set either to 0"
            )
        if self.mixup and votes and self.knn.momentum < 1:
            raise ValueError(
                f"mixup {self.mixup} embeds no row as it is, so knn.momentum {self.knn.momentum} has nothing to put "
                "into the memory; set knn.momentum to 1.0 or mixup to 0"
            )
        return self


class BuildIndex(Block):
    kind: Literal["flat", "hnsw", "ivf", "ivfpq", "auto"]
    metric: Literal["l2", "ip"]
    hnsw_m: Annotated[int, Field(ge=2)]
    ef_construction: Count
    ef_search: Count
    ivf_nlist: Whole
    ivf_nprobe: Whole
    pq_bytes: Whole
    pq_refine: Count
    build_threads: Count


class EvidenceSizes(Block):
    sizes: Annotated[list[Count], Field(min_length=1)]


class Crossfit(Block):
    folds: Whole

    @model_validator(mode="after")
    def _more_than_one(self) -> "Crossfit":
        if self.folds == 1:
            raise ValueError("folds: 1 leaves no rows to train on; give 0 for none, or 2 or more")
        return self


class Parts(Block):
    similarity: Literal["bank", "l2", "dot"]
    heads: Count
    temperature_bounds: list[Positive]
    features: list[Literal["distance", "gap", "rank", "label_share", "agreement", "density", "class_prior"]]
    hidden: Count
    self_attention: bool
    label_bias: bool
    prototypes: bool
    move_prototypes: bool
    class_correction: bool
    learned_prior: bool
    dropout: Rate

    @model_validator(mode="after")
    def _fit_together(self) -> "Parts":
        if self.heads > 1 and self.similarity != "dot":
            raise ValueError(f"heads: {self.heads} need similarity: dot, not {self.similarity}; set heads: 1")
        if self.temperature_bounds and not (
            len(self.temperature_bounds) == 2 and self.temperature_bounds[0] < 1 < self.temperature_bounds[1]
        ):
            raise ValueError(
                f"temperature_bounds: {self.temperature_bounds}; give [low, high] with low < 1 < high, or []"
            )
        if self.self_attention and not self.features:
            raise ValueError("self_attention: true needs features to attend to; name some, or set it false")
        if self.move_prototypes and not self.prototypes:
            raise ValueError("move_prototypes: true needs prototypes: true; set it, or this false")
        if len(set(self.features)) < len(self.features):
            raise ValueError(f"features: {self.features} names one twice")
        return self


class TrainAttention(Block):
    kind: Literal["attention", "tabr"]
    epochs: Count
    batch_size: Count
    lr: Positive
    weight_decay: NonNegative
    patience: Count
    restarts: Count
    label_smoothing: Rate
    hard_weight: Annotated[float, Field(ge=1)]
    entropy_weight: NonNegative
    calibration_weight: NonNegative
    parts: Parts


class Peers(Block):
    methods: list[Literal["raw-uniform", "raw-distance", "logistic", "forest", "boosting", "catboost", "xgboost"]]
    tries: Count


class Splits(Block):
    count: Whole
    first: Seed
    largest: Whole
    refit: bool

    @model_validator(mode="after")
    def _more_than_one(self) -> "Splits":
        if self.count == 1:
            raise ValueError("count: 1 has no spread; give 0 for none, or 2 or more")
        return self


class KSweep(Block):
    ks: Annotated[list[Count], Field(min_length=1)]
    resamples: Annotated[int, Field(ge=100)]


class Noise(Block):
    kinds: Annotated[list[Literal["symmetric", "asymmetric", "instance"]], Field(min_length=1)]
    rates: Annotated[list[Rate], Field(min_length=1)]
    repeats: Count
    train_seeds: list[Seed]
    train_kind: Literal["symmetric", "asymmetric", "instance"]
    train_rates: Annotated[list[Share], Field(min_length=1)]
    train_rounds: Count
    train_share: Annotated[float, Field(gt=0, le=1)]

    @model_validator(mode="after")
    def _leave_the_right_label_most_rows(self) -> "Noise":
        if self.train_kind == "asymmetric" and max(self.train_rates) >= 0.5:
            raise ValueError(
                f"train_rates: {max(self.train_rates)} under train_kind: asymmetric makes the wrong label of a class "
                "as common as its right one; give rates below 0.5"
            )
        return self


class Imbalance(Block):
    kinds: Annotated[list[Literal["long_tail", "step"]], Field(min_length=1)]
    ratios: Annotated[list[Share], Field(min_length=1)]
    repeats: Count
    train_seeds: list[Seed]
    train_kind: Literal["long_tail", "step"]
    train_ratios: Annotated[list[Share], Field(min_length=1)]


class Tta(Block):
    flip: bool
    crops: Whole
    padding: Count


class FieldSize(Block):
    frequencies: Count
    scale: Positive
    dims: Annotated[list[Count], Field(min_length=1)]
    latents: Count
    heads: Count
    depth: Whole
    least: Count
    decoded: Whole
    epochs: Count
    batch_size: Annotated[int, Field(ge=2)]
    lr: Positive
    muon: Positive
    bf16: bool
    compile: bool

    @model_validator(mode="after")
    def _heads(self) -> "FieldSize":
        uneven = [dim for dim in self.dims if dim % self.heads]
        if uneven:
            raise ValueError(f"heads: {self.heads} do not divide dims {uneven}; give a number that divides them all")
        return self


class Finetune(Block):
    epochs: Annotated[float, Field(gt=0, le=1)]
    rate: Annotated[float, Field(gt=0, le=1)]


class TrainField(Block):
    size: Name
    sizes: dict[Name, FieldSize]
    sampler: Literal["image", "batch"]
    share: Annotated[float, Field(gt=0, le=1)]
    warmup: Rate
    grad_clip: Positive
    contrast_weight: Positive
    temperature: Positive
    soft: NonNegative
    augment: Augment
    finetune: Finetune

    @model_validator(mode="after")
    def _known(self) -> "TrainField":
        if self.size != "none" and self.size not in self.sizes:
            raise ValueError(f"size: {self.size} is not among sizes; known are none, {', '.join(self.sizes)}")
        return self


class Transformer(Block):
    patch: Count
    dim: Count
    heads: Count
    layers: Count
    dropout: Rate
    epochs: Count
    patience: Count
    batch_size: Annotated[int, Field(ge=2)]
    lr: Positive

    @model_validator(mode="after")
    def _heads(self) -> "Transformer":
        if self.dim % self.heads:
            raise ValueError(f"heads: {self.heads} do not divide dim {self.dim}; give a number that does")
        return self


class Probe(Block):
    strengths: Annotated[list[Positive], Field(min_length=1)]
    transformers: dict[Name, Transformer]
    resamples: Annotated[int, Field(ge=100)]
    tsne_rows: Count
    pictures: Count


class Ensemble(Block):
    ks: Annotated[list[Count], Field(min_length=1)]


class Hard(Block):
    disagreement: Share
    weight: Annotated[float, Field(gt=1)]
    repeats: Count


class Selective(Block):
    risks: Annotated[list[Share], Field(min_length=1)]
    alphas: Annotated[list[Share], Field(min_length=1)]


class Hnsw(Block):
    hnsw_m: Annotated[int, Field(ge=2)]
    ef_construction: Count
    ef_search: Count


class Ivf(Block):
    ivf_nlist: Whole
    ivf_nprobe: Whole


class Profile(Block):
    repeats: Count
    singles: Annotated[int, Field(ge=10)]
    hnsw: Hnsw
    ivf: Ivf
    resamples: Annotated[int, Field(ge=100)]


class Theory(Block):
    resamples: Annotated[int, Field(ge=100)]


class Explain(Block):
    cases: Count
    neighbours: Count
    tsne_rows: Annotated[int, Field(ge=10)]
    perplexity: Positive


class Ablation(Block):
    repeats: Count
    resamples: Annotated[int, Field(ge=100)]


class Tune(Block):
    ks: Annotated[list[Count], Field(min_length=1)]
    temperatures: Annotated[list[Positive], Field(min_length=1)]
    priors: Annotated[list[Annotated[float, Field(ge=1e-6, lt=1)]], Field(min_length=1)]
    ridges: Annotated[list[Positive], Field(min_length=1)]


class Evaluate(Block):
    bins: Annotated[int, Field(ge=2)]
    resamples: Annotated[int, Field(ge=100)]
    confidence: Share


class Sklearn(Block):
    kind: Literal["sklearn"]
    loader: Literal["digits", "iris", "wine", "breast_cancer"]


class Torchvision(Block):
    kind: Literal["torchvision"]
    name: Literal["CIFAR10", "CIFAR100", "MNIST", "FashionMNIST"]
    md5: dict[str, str] = {}


class ImageFolder(Block):
    kind: Literal["image_folder"]
    path: str
    sha256: str = ""
    size: Whole = 0


class CsvFile(Block):
    path: str
    sha256: str = ""


class Rule(Block):
    threshold: float | None = None
    map: dict[str, str] | None = None

    @model_validator(mode="after")
    def _one_rule(self) -> "Rule":
        if (self.threshold is None) == (self.map is None):
            raise ValueError("give either threshold or map")
        return self


class Csv(Block):
    kind: Literal["csv"]
    train: CsvFile
    test: CsvFile | None = None
    target: str
    rule: Rule | None = None
    columns: list[str] | None = None
    separator: Annotated[str, Field(min_length=1)] = ","
    comment: Annotated[str, Field(max_length=1)] = ""
    missing: list[str] = []
    target_strip: str = ""
    drop: list[str] = []
    numeric: list[str] = []
    categories: list[str] = []


Source = Annotated[Sklearn | Torchvision | ImageFolder | Csv, Field(discriminator="kind")]


class Overrides(Block):
    """What differs for one dataset. Every block is there, `{}` where nothing differs: DVC tracks each by its name."""

    prepare: dict[str, Any]
    train_embedder: dict[str, Any]
    build_index: dict[str, Any]
    crossfit: dict[str, Any]
    train_attention: dict[str, Any]
    tta: dict[str, Any]
    train_field: dict[str, Any]


class Preset(Block):
    """A whole configuration that is laid over the rest. Every key is there: DVC tracks each by its name.

    `train_embedder.mlp` is laid over `train_embedder` for datasets whose encoder is an mlp, and only for those.
    """

    k_eval: Count | None
    k_train: Count | None
    train_embedder: dict[str, Any]
    build_index: dict[str, Any]
    crossfit: dict[str, Any]
    train_attention: dict[str, Any]
    tta: dict[str, Any]
    ensemble: dict[str, Any]


class EncoderAblation(Block):
    seeds: list[Seed]
    variants: dict[str, dict[str, Any]]


class Params(Block):
    preset: Name
    datasets: Annotated[list[Name], Field(min_length=1)]
    seeds: Annotated[list[Seed], Field(min_length=1)]
    k_eval: Count
    k_train: Count
    k_max: Count
    device: Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d+)?)$")]
    threads: Count
    mirror: str
    prepare: Prepare
    train_embedder: TrainEmbedder
    build_index: BuildIndex
    evidence: EvidenceSizes
    crossfit: Crossfit
    train_attention: TrainAttention
    tune: Tune
    peers: Peers
    evaluate: Evaluate
    k_sweep: KSweep
    noise: Noise
    imbalance: Imbalance
    tta: Tta
    ensemble: Ensemble
    hard: Hard
    selective: Selective
    profile: Profile
    splits: Splits
    theory: Theory
    explain: Explain
    ablation: Ablation
    encoder_ablation: EncoderAblation
    train_field: TrainField
    probe: Probe
    sources: dict[Name, Source]
    overrides: dict[Name, Overrides]

    @model_validator(mode="after")
    def _agree(self) -> "Params":
        for key in ("k_eval", "k_train"):
            if getattr(self, key) > self.k_max:
                raise ValueError(f"{key}: {getattr(self, key)} is above k_max: {self.k_max}; lower it or raise k_max")
        lists = {key: getattr(self, key) for key in ("datasets", "seeds")}
        lists |= {"noise.rates": self.noise.rates, "imbalance.ratios": self.imbalance.ratios}
        lists |= {"noise.train_rates": self.noise.train_rates, "imbalance.train_ratios": self.imbalance.train_ratios}
        lists |= {
            "evidence.sizes": self.evidence.sizes,
            "k_sweep.ks": self.k_sweep.ks,
            "ensemble.ks": self.ensemble.ks,
        }
        some = {"noise.train_seeds": self.noise.train_seeds, "imbalance.train_seeds": self.imbalance.train_seeds}
        some |= {"encoder_ablation.seeds": self.encoder_ablation.seeds}
        for key, values in (lists | some).items():
            if len(set(values)) < len(values):
                raise ValueError(f"{key}: {values} names one twice")
        size = self.train_field.size
        if size != "none" and size not in self.probe.transformers:
            raise ValueError(f"probe.transformers: none for train_field.size {size}; add one of that name")
        for key, values in some.items():
            if strange := [seed for seed in values if seed not in self.seeds]:
                raise ValueError(f"{key}: {strange[0]} is not among seeds: {self.seeds}; add it there or leave it out")
        if max(self.evidence.sizes) > self.k_max:
            raise ValueError(f"evidence.sizes: {max(self.evidence.sizes)} is above k_max: {self.k_max}; lower it")
        for name in self.datasets:
            if name not in self.sources:
                raise ValueError(f"datasets: {name} has no entry in sources; known are {', '.join(self.sources)}")
            if name not in self.overrides:
                blocks = ", ".join(f"{block}: {{}}" for block in Overrides.model_fields)
                raise ValueError(f"overrides.{name}: missing; add `{name}: {{{blocks}}}` under overrides")
        return self
