"""Names of methods as they stand on disk are taken apart and put together again unchanged."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnknn.core.errors import InputError
from attnknn.evaluation.method import FORWARD, KINDS, PRIOR, Method
from attnknn.evaluation.paired_tests import BASE, FOLDS

NAMES = {
    "distance": Method("distance"),
    "distance_vector": Method("distance", "vector"),
    "attention-folds": Method("attention-folds"),
    "raw-uniform": Method("raw-uniform"),
    "attention_weighted": Method("attention_weighted"),
    "distance_weighted_vector": Method("distance_weighted", "vector"),
    "uniform@5": Method("uniform", k=5),
    "uniform_isotonic@16": Method("uniform", "isotonic", 16),
    "plain:cnn_forward": Method("cnn", "forward", variant="plain"),
    "plain:distance_vector_prior": Method("distance_vector", "prior", variant="plain"),
    "seed 42:linear_temperature": Method("linear", "temperature", variant="seed 42"),
    "full:pixels:linear_probe": Method("linear_probe", variant="full:pixels"),
    "sparse:full_nce:distance@7": Method("distance", k=7, variant="sparse:full_nce"),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_taken_apart_and_put_together(name: str) -> None:
    assert Method.parse(name) == NAMES[name]
    assert str(NAMES[name]) == name
    assert NAMES[name].name == name.rpartition(":")[2]


@given(
    base=st.sampled_from([*(name for name in BASE if "_" not in name), *FOLDS, "linear_probe", "attention_weighted"]),
    calibration=st.sampled_from(["", *KINDS, PRIOR, FORWARD]),
    k=st.none() | st.integers(1, 1000),
    variant=st.sampled_from(["", "0", "cleaned", "full:sparse_nce", "mean of seeds", "flat_l2"]),
)
def test_every_part_survives(base: str, calibration: str, k: int | None, variant: str) -> None:
    method = Method(base, calibration, k, variant)
    assert Method.parse(str(method)) == method


@pytest.mark.parametrize("name", ["", "plain:"])
def test_a_name_without_a_base_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="not a method name"):
        Method.parse(name)
