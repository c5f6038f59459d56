"""Method names: `variant:base_calibration@k`, all but the base optional."""

import re
from dataclasses import dataclass, replace

from attnknn.core.errors import require

KINDS = ("temperature", "vector", "isotonic", "dirichlet")  # see `calibration.calibrate`
PRIOR = "prior"  # class prior correction, see `calibration.correct_prior`
FORWARD = "forward"  # predicts true classes through T, see `heads.label_noise`
_NAME = re.compile(
    rf"(?:(?P<variant>.+):)?(?P<base>[^:]+?)(?:_(?P<calibration>{'|'.join((*KINDS, PRIOR, FORWARD))}))?(?:@(?P<k>\d+))?"
)


@dataclass(frozen=True)
class Method:
    """A method's name in parts; `str` composes it.

    Attributes:
        base: the classifier, as `distance`. One calibrated twice (`distance_vector_prior`) keeps the first calibration
            in its base (`distance_vector`).
        calibration: one of `KINDS`, `PRIOR` or `FORWARD`; empty for none.
        k: the number of neighbours, where methods are compared at several.
        variant: another factor of a comparison, such as a representation, an index or a repeat.

    Example:
        >>> Method.parse("plain:distance_vector@5")
        Method(base='distance', calibration='vector', k=5, variant='plain')
    """

    base: str
    calibration: str = ""
    k: int | None = None
    variant: str = ""

    @classmethod
    def parse(cls, name: str) -> "Method":
        """Split a name into its parts.

        Raises:
            InputError: the name has no base.
        """
        match = _NAME.fullmatch(name)
        require(match is not None, f"{name!r}: not a method name; expected variant:base_calibration@k, at least a base")
        base, calibration, k, variant = match.group("base", "calibration", "k", "variant")  # type: ignore[union-attr]
        return cls(base, calibration or "", int(k) if k else None, variant or "")

    @property
    def name(self) -> str:
        """The name without the variant."""
        return str(replace(self, variant=""))

    def __str__(self) -> str:
        variant = f"{self.variant}:" if self.variant else ""
        calibration = f"_{self.calibration}" if self.calibration else ""
        return f"{variant}{self.base}{calibration}" + (f"@{self.k}" if self.k is not None else "")
