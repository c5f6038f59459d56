"""Review of the memory's labels, least credible first: decisions, which are applied to the model together."""

import csv
import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from attnknn.app.model.model import DECISIONS, Model
from attnknn.app.server.security import RequestError
from attnknn.classifier.audit import summarise_label_issues
from attnknn.core.errors import require

MAX_ISSUES = 100  # of a response


class LabelReview:
    """The audit of a model's memory, and decisions about its rows."""

    def __init__(self, model: Model) -> None:
        issues = model.classifier.audit()
        self._issues = issues.sort_values("label_quality", kind="stable")
        summary = summarise_label_issues(issues)
        self._summary = {name: summary[name] for name in ("rows", "flagged", "wrong", "wrong_low", "wrong_high")}
        self._summary["evident"] = issues.attrs["evident"]
        self._decisions: dict[int, tuple[str, str]] = {}

    def page(self, model: Model, start: int, count: int, example: Callable[[str], Any]) -> dict[str, Any]:
        """Some rows that are still in the memory, by label quality, with the decisions about them.

        Args:
            example: function query name → what is shown of it.
        """
        require(1 <= count <= MAX_ISSUES, f"count: {count}; give 1 … {MAX_ISSUES}")
        ids = self._issues.index.to_numpy()
        present = self._issues[model.memory.positions(ids) >= 0]
        issues = []
        shown = present.iloc[start : start + count]
        for row_id, (_, row) in zip(shown.index.tolist(), shown.iterrows(), strict=True):
            decision, label = self._decisions.get(row_id, ("", ""))
            issues.append(
                {
                    "id": row_id,
                    "given": str(row["given_label"]),
                    "predicted": str(row["predicted_label"]),
                    "quality": float(row["label_quality"]),
                    "conflicting": int(row["n_conflicting"]),
                    "decision": decision,
                    "label": label,
                    "example": example(f"memory/{row_id}"),
                }
            )
        counts = {"total": len(present), "left": int(present["is_label_issue"].sum()), "decided": len(self._decisions)}
        return {**self._summary, **counts, "start": start, "issues": issues}

    def decide(self, model: Model, row_id: Any, decision: Any, label: Any) -> dict[str, Any]:
        """Note a decision about a row; an empty one removes it."""
        require(type(row_id) is int, "id: give the id of a row")
        valid = decision == "" or decision in DECISIONS
        require(valid, f"decision: {decision!r:.20}; give {', '.join(DECISIONS)}, or an empty text to remove it")
        require(isinstance(label, str), "label: give a text, empty unless the decision is relabel")
        model.positions([row_id])
        if row_id not in self._issues.index:
            raise RequestError(404, f"row {row_id} was decided before, or added after the audit")
        if decision == "relabel":
            model.parse_labels([label])
        self._decisions.pop(row_id, None)
        if decision:
            self._decisions[row_id] = decision, label if decision == "relabel" else ""
        return {"decided": len(self._decisions)}

    def apply(self, model: Model) -> dict[str, int]:
        """Change the model by the decisions about rows that are still in it; count them."""
        present = model.memory.positions(np.array(list(self._decisions), dtype=np.int64)) >= 0
        rows = [(row_id, *own) for (row_id, own), here in zip(self._decisions.items(), present, strict=True) if here]
        counts = model.apply_decisions(rows)
        # Rows that are kept need no second look; those that were relabelled have new ids.
        self._issues = self._issues.drop(list(self._decisions))
        self._decisions.clear()
        return counts

    def to_csv(self) -> str:
        """The decisions, as `attnknn audit --apply` reads them."""
        buffer = io.StringIO()
        writer = csv.writer(buffer)
        writer.writerow(["id", "decision", "label", "given_label", "label_quality"])
        writer.writerows(self._lines())
        return buffer.getvalue()

    def _lines(self) -> Iterator[tuple[object, ...]]:
        for row_id, decision in self._decisions.items():
            row = self._issues.loc[row_id]
            yield row_id, *decision, row["given_label"], f"{row['label_quality']:.4g}"
