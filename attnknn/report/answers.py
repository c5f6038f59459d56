"""Summarise the claims: the verdict of every setting, and the headline of the report."""

from collections.abc import Sequence

from attnknn.evaluation.metrics import NORMAL_FROM
from attnknn.report.claims import FEWEST_ERRORS, NAMES, Claim, Setting, Verdict, smallest_p
from attnknn.report.plots import method_name
from attnknn.report.tables import fixed, p_value

_DECIDES = ("nll", "accuracy")  # metrics in which a loss is a "no"
_NAMED = 4  # conditions listed by name; more are counted
_WORDS: dict[Verdict, str] = {"no": "worse", "undecided": "not clearly different", "yes": "better"}


def _against_knn(claim: Claim) -> bool:
    return "best tuned" in claim.roles or "to beat" in claim.roles


def answer(claims: Sequence[Claim]) -> Verdict:
    """The verdict of one setting against the kNN baselines.

    yes: lower NLL than both kNN baselines, and no metric is worse. no: worse NLL or accuracy than either. undecided:
    everything else. For classifiers without neighbours see `beyond`.
    """
    claims = [c for c in claims if _against_knn(c)]
    nll = [c.verdict for c in claims if c.metric == "nll"]
    if any(c.verdict == "no" for c in claims if c.metric in _DECIDES):
        return "no"
    lost = any(c.verdict == "no" for c in claims)
    return "yes" if nll and all(v == "yes" for v in nll) and not lost else "undecided"


def _settings(claims: Sequence[Claim]) -> list[Setting]:
    return list(dict.fromkeys(c.setting for c in claims))


def answers(claims: Sequence[Claim]) -> dict[Setting, Verdict]:
    """The verdict of every setting, in their order."""
    return {s: answer([c for c in claims if c.setting == s]) for s in _settings(claims)}


def overall(verdicts: Sequence[Verdict]) -> Verdict:
    """One verdict for several settings: no where any is no, yes where all are yes."""
    return "no" if "no" in verdicts else "yes" if set(verdicts) == {"yes"} else "undecided"


def _list(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _list_settings(settings: Sequence[Setting], every: Sequence[Setting]) -> str:
    """Settings by dataset; conditions are named, up to `_NAMED`, where not all of a dataset are meant."""
    words = []
    for dataset in dict.fromkeys(d for d, _ in settings):
        conditions = [condition for d, condition in settings if d == dataset]
        total = sum(d == dataset for d, _ in every)
        named = ", ".join(conditions) if len(conditions) <= _NAMED else f"{len(conditions)} of {total} conditions"
        shown = "" if total == 1 else " (all conditions)" if len(conditions) == total else f" ({named})"
        words.append(dataset + shown)
    return _list(words)


def _losses(claims: Sequence[Claim], settings: Sequence[Setting]) -> str:
    """In which metric attention is worse than which kNN, and in which settings."""
    lost: dict[tuple[str, tuple[Setting, ...]], list[str]] = {}
    for metric in _DECIDES:
        worse = [c for c in claims if c.verdict == "no" and c.setting in settings and _against_knn(c)]
        worse = [c for c in worse if c.metric == metric]
        for baseline in dict.fromkeys(c.baseline for c in worse):
            where = tuple(c.setting for c in worse if c.baseline == baseline)
            lost.setdefault((metric, where), []).append(method_name(baseline))
    return "; ".join(
        f"its {NAMES[metric]} is worse than that of {_list(names)}"
        + ("" if set(where) == set(settings) else f" on {_list_settings(where, _settings(claims))}")
        for (metric, where), names in lost.items()
    )


def _encoders(claims: Sequence[Claim]) -> str:
    """The number of trained encoders behind the verdicts."""
    seeds = {s: max(c.seeds for c in claims if c.setting == s) for s in _settings(claims)}
    names = {n: "one trained encoder" if n == 1 else f"{n} trained encoders" for n in sorted(set(seeds.values()))}
    if len(names) == 1:
        text = f"{next(iter(names.values()))} per dataset"
    else:
        settings = {n: [s for s, count in seeds.items() if count == n] for n in names}
        text = _list([f"{name} on {_list_settings(settings[n], list(seeds))}" for n, name in names.items()])
    limit = "; variation between trained encoders is not measured" if min(names) == 1 else ""
    return f"The verdicts are based on {text}{limit}."


def headline(claims: Sequence[Claim], k_eval: int) -> list[str]:
    """The verdicts in two to four sentences, losses first.

    Args:
        k_eval: largest number of neighbours of every method.
    """
    verdicts = answers(claims)
    every = list(verdicts)
    named = {kind: [s for s, v in verdicts.items() if v == kind] for kind in ("no", "undecided", "yes")}
    lines = []
    if named["no"]:
        losses = _losses(claims, named["no"])
        lines.append(f"Learned attention does not pay on {_list_settings(named['no'], every)}: {losses}.")
    if named["undecided"]:
        lines.append(f"Learned attention does not clearly win on {_list_settings(named['undecided'], every)}.")
    if named["yes"]:
        lost = [c for c in claims if c.setting in named["yes"] and "without neighbours" in c.roles]
        where = {m: [c.setting for c in lost if c.metric == m and c.verdict == "no"] for m in _DECIDES}
        exceptions = [f"in {NAMES[m]} on {_list_settings(group, every)}" for m, group in where.items() if group]
        but = f"; but a classifier without neighbours is better {', and '.join(exceptions)}" if exceptions else ""
        lines.append(
            f"Against kNN, learned attention pays on {_list_settings(named['yes'], every)}: its NLL is lower than the "
            f"best tuned kNN's, with at most {k_eval} neighbours, and than that of distance weighting with vector "
            f"scaling, and it is worse than these in no metric{but}."
        )
    return [*lines, _encoders(claims)]


def underpowered(claims: Sequence[Claim], resamples: int, alpha: float = 0.01) -> list[str]:
    """Settings where no difference in NLL could be significant, and why, in at most two sentences.

    With fewer than `FEWEST_ERRORS` errors there is no verdict. Below `NORMAL_FROM` errors p is at least
    2/(resamples + 1), twice that where runs are combined; Holm multiplies the smallest p of a family by its claims.
    """
    settings = _settings(claims)
    nll = {s: [c for c in claims if c.setting == s and c.metric == "nll" and _against_knn(c)] for s in settings}
    sizes = {family: sum(c.primary == family for c in claims) for family in (True, False)}

    def coarse(c: Claim) -> bool:
        smallest = sizes[c.primary] * smallest_p(c.runs, resamples)
        return c.errors < NORMAL_FROM and smallest >= alpha and c.verdict == "undecided"

    few = [s for s in settings if all(c.errors < FEWEST_ERRORS for c in nll[s])]
    counted = [s for s in settings if s not in few and all(c.errors < FEWEST_ERRORS or coarse(c) for c in nll[s])]
    lines = []
    if few:
        lines.append(f"No verdict on {_list_settings(few, settings)}: fewer than {FEWEST_ERRORS} errors.")
    if counted:
        families = {family: [s for s in counted if nll[s][0].primary == family] for family in sizes}
        where = [
            f"{_list_settings(group, settings)}, among {sizes[f]} claims" for f, group in families.items() if group
        ]
        lines.append(
            f"Underpowered for NLL on {', and on '.join(where)}: with fewer than {NORMAL_FROM} errors, {resamples:,} "
            "resamples are too coarse for a verdict."
        )
    return lines


def beyond(claims: Sequence[Claim]) -> str:
    """Attention's NLL against classifiers without neighbours, the plain network and other classifiers of tables.

    Losses in accuracy to classifiers without neighbours are listed too. The plain network and other classifiers are
    compared where they were scored: modifying the bank does not affect them.
    """
    every = _settings(claims)

    def select(role: str, metric: str, *verdicts: Verdict) -> list[Claim]:
        """Claims by verdict, in the order of the verdicts."""
        rows = [c for c in claims if role in c.roles and c.metric == metric]
        return [c for verdict in verdicts or _WORDS for c in rows if c.verdict == verdict]

    without = {word: select("without neighbours", "nll", verdict) for verdict, word in _WORDS.items()}
    parts = [f"{word} on {_list_settings([c.setting for c in rows], every)}" for word, rows in without.items() if rows]
    text = (
        "Against the best classifier without neighbours (class prototypes or the encoder's linear head, calibrated "
        f"where that is better) its NLL is {'; '.join(parts)}"
    )
    lost = [c.setting for c in select("without neighbours", "accuracy", "no")]
    text += f"; its accuracy is worse on {_list_settings(lost, every)}." if lost else "."
    plain = select("plain network", "nll")
    if plain:
        parts = [
            f"{_WORDS[c.verdict]} on {c.dataset}, {c.condition} ({fixed(c.difference, 4, True)}, interval "
            f"{fixed(c.low, 4, True)} … {fixed(c.high, 4, True)}, p {p_value(c.p)})"
            for c in plain
        ]
        text += (
            " Against the plain network, the same backbone trained to classify, which is the upper bound, calibrated "
            f"where that is better, its NLL is {'; '.join(parts)}."
        )
    for metric in _DECIDES:
        parts = [
            f"{_WORDS[c.verdict]} than that of {method_name(c.baseline)} on {c.dataset} "
            f"({fixed(c.difference, 4, True)})"
            for c in select("other classifiers", metric)
        ]
        if parts:
            text += f" On tables, against the best of the other classifiers, its {NAMES[metric]} is "
            text += f"{'; '.join(parts)}."
    lacking = [name for name in dict.fromkeys(d for d, _ in every) if name not in {c.dataset for c in plain}]
    return text + (f" There is no plain network to compare with on {_list(lacking)}." if lacking else "")
