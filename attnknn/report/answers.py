"""What the claims amount to, in words: does attention pay, where not, and on how many trained encoders that rests."""

from collections.abc import Sequence

from attnknn.evaluation.metrics import NORMAL_FROM
from attnknn.report.claims import FEWEST_ERRORS, NAMES, Claim, Setting, Verdict, smallest_p
from attnknn.report.plots import method_name
from attnknn.report.tables import fixed, p_value

_DECIDES = ("nll", "accuracy")  # metrics in which a loss is a "no"
_NAMED = 4  # conditions, beyond which they are counted


def _of_neighbours(claim: Claim) -> bool:
    """Whether its baseline is a kNN."""
    return "best tuned" in claim.roles or "to beat" in claim.roles


def answer(of_setting: Sequence[Claim]) -> Verdict:
    """Does attention pay here, against the kNN baselines?

    yes: its NLL is lower than both kNN baselines', and nothing claimed against them is worse. no: it is worse in NLL or
    accuracy against either. undecided: everything else. Methods without neighbours are another question; see `beyond`.
    """
    of_setting = [c for c in of_setting if _of_neighbours(c)]
    nll = [c.verdict for c in of_setting if c.metric == "nll"]
    if any(c.verdict == "no" for c in of_setting if c.metric in _DECIDES):
        return "no"
    lost = any(c.verdict == "no" for c in of_setting)
    return "yes" if nll and all(v == "yes" for v in nll) and not lost else "undecided"


def answers(found: Sequence[Claim]) -> dict[Setting, Verdict]:
    """The answer of every setting, in their order."""
    return {s: answer([c for c in found if c.setting == s]) for s in dict.fromkeys(c.setting for c in found)}


def overall(verdicts: Sequence[Verdict]) -> Verdict:
    """One answer for several settings: no where any is no, yes where all are yes."""
    return "no" if "no" in verdicts else "yes" if set(verdicts) == {"yes"} else "undecided"


def _list(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _places(settings: Sequence[Setting], all_of: Sequence[Setting]) -> str:
    """Settings by dataset; up to four conditions are named where a dataset has several and not all are meant."""
    words = []
    for dataset in dict.fromkeys(d for d, _ in settings):
        mine = [condition for d, condition in settings if d == dataset]
        total = sum(d == dataset for d, _ in all_of)
        named = ", ".join(mine) if len(mine) <= _NAMED else f"{len(mine)} of {total} conditions"
        shown = "" if total == 1 else " (all conditions)" if len(mine) == total else f" ({named})"
        words.append(dataset + shown)
    return _list(words)


def _losses(found: Sequence[Claim], settings: Sequence[Setting]) -> str:
    """In which metric attention is worse than which kNN, and where in some of the settings alone."""
    lost: dict[tuple[str, tuple[Setting, ...]], list[str]] = {}
    worse = [c for c in found if c.verdict == "no" and c.setting in settings and _of_neighbours(c)]
    for metric in _DECIDES:
        mine = [c for c in worse if c.metric == metric]
        for baseline in dict.fromkeys(c.baseline for c in mine):
            where = tuple(c.setting for c in mine if c.baseline == baseline)
            lost.setdefault((metric, where), []).append(method_name(baseline))
    every = list(dict.fromkeys(c.setting for c in found))
    return "; ".join(
        f"its {NAMES[metric]} is worse than that of {_list(names)}"
        + ("" if set(where) == set(settings) else f" on {_places(where, every)}")
        for (metric, where), names in lost.items()
    )


def _rests_on(found: Sequence[Claim]) -> str:
    """On how many trained encoders the answers rest."""
    seeds = {s: max(c.seeds for c in found if c.setting == s) for s in dict.fromkeys(c.setting for c in found)}

    def encoders(n: int) -> str:
        return "one trained encoder" if n == 1 else f"{n} trained encoders"

    counts = sorted(set(seeds.values()))
    if len(counts) == 1:
        text = f"{encoders(counts[0])} a dataset"
    else:
        parts = [(n, _places([s for s, of in seeds.items() if of == n], list(seeds))) for n in counts]
        text = _list([f"{encoders(n)} on {places}" for n, places in parts])
    untold = "; how much another encoder would change is not in them" if counts[0] == 1 else ""
    return f"The answers rest on {text}{untold}."


def _exceptions(found: Sequence[Claim], settings: Sequence[Setting], every: Sequence[Setting]) -> str:
    """In which metric, and on which of some settings, what does without neighbours is better; empty where nowhere."""
    lost = [c for c in found if c.setting in settings and "without neighbours" in c.roles and c.verdict == "no"]
    where = {metric: [c.setting for c in lost if c.metric == metric] for metric in _DECIDES}
    parts = [f"in {NAMES[metric]} on {_places(of, every)}" for metric, of in where.items() if of]
    return f"; but what does without neighbours is better {', and '.join(parts)}" if parts else ""


def headline(found: Sequence[Claim], k_eval: int) -> list[str]:
    """The answer in two to four sentences: where attention does not win comes first, what it rests on last.

    Args:
        k_eval: neighbours that every method may use.
    """
    verdicts = answers(found)
    every = list(verdicts)
    named = {kind: [s for s, v in verdicts.items() if v == kind] for kind in ("no", "undecided", "yes")}
    lines = []
    if named["no"]:
        losses = _losses(found, named["no"])
        lines.append(f"Learned attention does not pay on {_places(named['no'], every)}: {losses}.")
    if named["undecided"]:
        lines.append(f"Learned attention does not clearly win on {_places(named['undecided'], every)}.")
    if named["yes"]:
        lines.append(
            f"Against kNN, learned attention pays on {_places(named['yes'], every)}: its NLL is lower than the best "
            f"tuned kNN's, with at most {k_eval} neighbours, and than that of distance weighting with vector scaling, "
            f"and nothing claimed against these is worse{_exceptions(found, named['yes'], every)}."
        )
    return [*lines, _rests_on(found)]


def out_of_reach(found: Sequence[Claim], resamples: int, alpha: float = 0.01) -> list[str]:
    """Where no difference in NLL could have been decided, and why, in none to two sentences.

    Fewer than `FEWEST_ERRORS` errors decide nothing. Below `NORMAL_FROM` errors p is at least 2/(resamples + 1), twice
    that where runs are combined, and Holm multiplies the smallest of a family by the number of its claims.
    """
    settings = list(dict.fromkeys(c.setting for c in found))
    nll = {s: [c for c in found if c.setting == s and c.metric == "nll" and _of_neighbours(c)] for s in settings}

    sizes = {family: sum(c.primary == family for c in found) for family in (True, False)}

    def coarse(c: Claim) -> bool:
        smallest = sizes[c.primary] * smallest_p(c.runs, resamples)
        return c.errors < NORMAL_FROM and smallest >= alpha and c.verdict == "undecided"

    few = [s for s in settings if all(c.errors < FEWEST_ERRORS for c in nll[s])]
    counted = [s for s in settings if s not in few and all(c.errors < FEWEST_ERRORS or coarse(c) for c in nll[s])]
    lines = []
    if few:
        lines.append(
            f"Fewer than {FEWEST_ERRORS} test rows are wrong on {_places(few, settings)}: too few for a verdict."
        )
    if counted:
        families = {family: [s for s in counted if nll[s][0].primary == family] for family in sizes}
        where = [f"{_places(of, settings)}, among {sizes[kind]} claims" for kind, of in families.items() if of]
        lines.append(
            f"Fewer than {NORMAL_FROM} are wrong on {', and on '.join(where)}: there {resamples:,} resamples are too "
            "coarse for a verdict on NLL, whatever the difference."
        )
    return lines


def beyond(found: Sequence[Claim]) -> str:
    """Do neighbours add anything to what does without them, and to another training? In words.

    By NLL; where it loses accuracy to what does without neighbours, that too. The plain network, and other classifiers
    of tables, are compared where they were scored: what is done to the memory does not touch them.
    """
    words: dict[Verdict, str] = {"no": "worse", "undecided": "not clearly different", "yes": "better"}
    every = list(dict.fromkeys(c.setting for c in found))
    without, plain = (
        [c for c in found if role in c.roles and c.metric == "nll"] for role in ("without neighbours", "plain network")
    )
    parts = [
        f"{word} on {_places([c.setting for c in without if c.verdict == kind], every)}"
        for kind, word in words.items()
        if any(c.verdict == kind for c in without)
    ]
    text = (
        "Against the best classifier without neighbours, which is class prototypes alone or the encoder's linear head, "
        f"calibrated where that is better, its NLL is {'; '.join(parts)}"
    )
    lost = [
        c.setting for c in found if "without neighbours" in c.roles and c.metric == "accuracy" and c.verdict == "no"
    ]
    text += f"; its accuracy is worse on {_places(lost, every)}." if lost else "."
    if plain:
        parts = [
            f"{words[c.verdict]} on {c.dataset}, {c.condition} ({fixed(c.difference, 4, True)}, interval "
            f"{fixed(c.low, 4, True)} … {fixed(c.high, 4, True)}, p {p_value(c.p)})"
            for kind in words
            for c in plain
            if c.verdict == kind
        ]
        text += (
            " Against the plain network, the same backbone trained to classify, which is the upper bound (another "
            "encoder, unless the encoder was itself trained so: then it is its linear head), calibrated where that is "
            f"better, its NLL is {'; '.join(parts)}."
        )
    for metric in _DECIDES:
        others = [c for c in found if "other classifiers" in c.roles and c.metric == metric]
        parts = [
            f"{words[c.verdict]} than that of {method_name(c.baseline)} on {c.dataset} ({fixed(c.difference, 4, True)})"
            for kind in words
            for c in others
            if c.verdict == kind
        ]
        if parts:
            text += " On tables, against the best of the classifiers that read the columns themselves, its "
            text += f"{NAMES[metric]} is {'; '.join(parts)}."
    lacking = [name for name in dict.fromkeys(d for d, _ in every) if name not in {c.dataset for c in plain}]
    return text + (f" There is no plain network to compare with on {_list(lacking)}." if lacking else "")


def sentence(of_setting: Sequence[Claim]) -> str:
    """What was found in one setting, in words: better, worse and undecided metrics against each baseline."""
    words = {"yes": "better", "no": "worse"}
    roles = {
        "best tuned": "the best tuned kNN",
        "to beat": "distance weighting + vector scaling",
        "without neighbours": "the best without neighbours",
        "plain network": "the plain network",
    }
    found: dict[str, list[str]] = {}
    for role, name in roles.items():
        mine = [c for c in of_setting if role in c.roles]
        if not mine:
            continue
        parts = [
            f"{word} in {_list([NAMES[c.metric] for c in mine if c.verdict == kind])}"
            for kind, word in words.items()
            if any(c.verdict == kind for c in mine)
        ]
        open_ = [NAMES[c.metric] for c in mine if c.verdict == "undecided"]
        if open_:
            parts.append(f"undecided in {_list(open_)}")
        found.setdefault(", ".join(parts), []).append(name)
    return " ".join(f"Against {_list(who)}: {what}." for what, who in found.items())
