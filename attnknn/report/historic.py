"""The numbers of the historic study of attention-weighted kNN, as its documents state them.

One run each, seed 42, on CIFAR-10 except for iris; without intervals, and with the methodological faults that this
project corrects. The documents have no numbers for MNIST, wine quality and Adult. Where two documents differ, both
values are stored.

Sources:
    notebook 2: "AttnKNN_Experiment_2", 25 November 2025, with its outputs: the numbers of experiments 1 to 3.
    notebook: "Attn-KNN: Learned Attention over Neighbors for Classification", 26 November 2025, configured as
        experiment 5; its outputs end in the second epoch.
    write-up: "Attn-KNN: A Research Journey", parts II to VII.
"""

from dataclasses import dataclass

Values = tuple[float, ...]  # one, or two where documents differ: that of the notebook first


@dataclass(frozen=True)
class Number:
    """One number of a historic table.

    Attributes:
        experiment: of `EXPERIMENTS`.
        table: main, k_sweep, noise or imbalance.
        x: k, share of wrong labels or ratio of the rarest class to the largest; 0 in main.
        method, metric: as in `plots.METHODS` and `plots.METRICS`; also `attention_tta` and `attention_ensemble`.
        source: document and section.
    """

    experiment: str
    table: str
    x: float
    method: str
    metric: str
    values: Values
    source: str


# experiment: the presets that repeat it. The documents have one table for the first three.
EXPERIMENTS = {
    "1–3": ("experiment1", "experiment2", "experiment3"),
    "4": ("experiment4",),
    "5": ("experiment5",),
    "6": ("experiment6",),
}
METHODS = ("uniform", "distance", "attention")
_METRICS = ("accuracy", "f1_macro", "nll", "ece")
_PLACE = {
    "1–3": "notebook 2, main results; write-up II, experiments 1–3",
    "4": "write-up II, experiment 4",
    "5": "write-up II, experiment 5",
    "6": "write-up II, experiment 6",
}

# experiment: method: accuracy, macro F1, NLL, ECE
_MAIN: dict[str, dict[str, tuple[float | Values, ...]]] = {
    "1–3": {
        "uniform": (0.8861, (0.8861, 0.8858), (0.8193, 1.021), 0.0165),
        "distance": (0.8862, (0.8860, 0.8859), (0.8193, 1.018), 0.0347),
        "attention": (0.8854, (0.8852, 0.8851), (0.8193, 1.025), 0.0329),
    },
    "4": {
        "uniform": (0.8969, 0.8966, 0.964, 0.0243),
        "distance": (0.8970, 0.8966, 0.964, 0.0566),
        "attention": (0.8970, 0.8966, 0.964, 0.0578),
        "cnn": (0.9494, 0.9493, 0.258, 0.0718),
    },
    "5": {
        "uniform": (0.8682, 0.8678, 2.053, 0.1297),
        "distance": (0.8685, 0.8681, 2.054, 0.1099),
        "attention": (0.8685, 0.8681, 2.054, 0.1300),
        "attention_tta": (0.8720, 0.8727, 0.967, 0.0283),
        "attention_ensemble": (0.8683, 0.8679, 2.047, 0.1299),
        "cnn": (0.9512, 0.9511, 0.242, 0.0685),
    },
    "6": {
        "uniform": (0.8557, 0.8553, 2.028, 0.1336),
        "distance": (0.8555, 0.8551, 2.028, 0.1169),
        "attention": (0.8548, 0.8544, 2.058, 0.1359),
        "attention_tta": (0.8554, 0.8550, 0.931, 0.0379),
        "cnn": (0.9497, 0.9496, 0.247, 0.0726),
    },
}

# table: experiment: metric: x: uniform, distance, attention
_CURVES: dict[str, dict[str, dict[str, dict[float, tuple[float, float, float]]]]] = {
    "k_sweep": {
        "1–3": {
            "accuracy": {
                1: (0.8653, 0.8653, 0.8653),
                3: (0.8745, 0.8745, 0.8745),
                5: (0.8803, 0.8800, 0.8799),
                10: (0.8861, 0.8862, 0.8854),
                20: (0.8881, 0.8878, 0.8882),
                50: (0.8894, 0.8891, 0.8897),
            },
            "ece": {
                1: (0.1347, 0.1347, 0.1347),
                3: (0.0675, 0.0664, 0.0647),
                5: (0.0525, 0.0508, 0.0482),
                10: (0.0165, 0.0347, 0.0329),
                20: (0.0147, 0.0276, 0.0258),
                50: (0.0273, 0.0254, 0.0221),
            },
        },
        "4": {
            "accuracy": {
                1: (0.8886, 0.8886, 0.8886),
                3: (0.8952, 0.8944, 0.8947),
                5: (0.8966, 0.8962, 0.8962),
                10: (0.8969, 0.8970, 0.8970),
                20: (0.8975, 0.8968, 0.8973),
                50: (0.8978, 0.8977, 0.8975),
            },
        },
        "5": {
            "accuracy": {
                1: (0.8682, 0.8682, 0.8682),
                3: (0.8684, 0.8684, 0.8685),
                5: (0.8683, 0.8683, 0.8686),
                10: (0.8682, 0.8684, 0.8682),
                20: (0.8683, 0.8683, 0.8685),
                50: (0.8680, 0.8680, 0.8684),
            },
        },
    },
    "noise": {
        "1–3": {
            "accuracy": {
                0.0: (0.8861, 0.8862, 0.8854),
                0.1: (0.8839, 0.8841, 0.8840),
                0.2: (0.8832, 0.8824, 0.8817),
                0.3: (0.8766, 0.8791, 0.8780),
            },
        },
        "4": {
            "accuracy": {
                0.0: (0.8969, 0.8970, 0.8970),
                0.1: (0.8973, 0.8973, 0.8973),
                0.2: (0.8948, 0.8957, 0.8957),
                0.3: (0.8921, 0.8918, 0.8918),
            },
        },
        "5": {
            "accuracy": {
                0.0: (0.8682, 0.8685, 0.8685),
                0.1: (0.8684, 0.8685, 0.8682),
                0.2: (0.8683, 0.8685, 0.8685),
                0.3: (0.8682, 0.8685, 0.8680),
            },
        },
    },
    "imbalance": {
        "4": {
            "accuracy": {
                1.0: (0.8969, 0.8970, 0.8970),
                0.1: (0.8941, 0.8942, 0.8940),
                0.01: (0.8869, 0.8881, 0.8880),
            },
        },
    },
}

# index: milliseconds to build, milliseconds a query in a batch of 1,000, k 10; 50,000 × 256 Gaussian numbers.
# The HNSW of the notebook's code leaves efConstruction at FAISS's 40; its memory bank has 200.
PROFILE = {"flat L2": (3.2, 0.034), "flat IP": (1.0, 0.027), "HNSW": (41_100.0, 0.051)}
PROFILE_SOURCE = "write-up VII; notebook, efficiency profiling"

# quantity: (value, source)
THEORY = {
    "bank rows n": (50_000.0, "notebook 2, theory validation"),
    "√n": (223.0, "notebook 2, theory validation"),
    "mean norm of the embeddings": (1.0, "notebook 2, theory validation"),
    "sd of the norms": (0.0, "notebook 2, theory validation"),
    "τ learned, start 1, after 10 epochs": (1.9443, "notebook 2, attention temperature"),
    "NLL at k 1": (2.101, "write-up V; the experiment is not named"),
    "NLL at k 50": (2.032, "write-up V; the experiment is not named"),
}

# Iris: 108 training rows in the memory, 30 test rows, MLP 4→256→128→64, Proxy-Anchor, k 5; all three methods alike.
_IRIS = (0.9667, 0.9666, 0.5314, 0.0333)


_MAIN_NUMBERS = [
    Number(experiment, "main", 0, method, metric, value if isinstance(value, tuple) else (value,), _PLACE[experiment])
    for experiment, methods in _MAIN.items()
    for method, scores in methods.items()
    for metric, value in zip(_METRICS, scores, strict=True)
]
_CURVE_NUMBERS = [
    Number(experiment, table, x, method, metric, (value,), _PLACE[experiment])
    for table, experiments in _CURVES.items()
    for experiment, metrics in experiments.items()
    for metric, rows in metrics.items()
    for x, scores in rows.items()
    for method, value in zip(METHODS, scores, strict=True)
]
CIFAR10 = (*_MAIN_NUMBERS, *_CURVE_NUMBERS)
IRIS = tuple(
    Number("1–3", "main", 0, method, metric, (value,), "notebook 2, iris results")
    for method in METHODS
    for metric, value in zip(_METRICS, _IRIS, strict=True)
)
