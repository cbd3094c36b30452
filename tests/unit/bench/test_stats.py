"""Medians, quartiles and paired ratios of rounds."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.stats import paired_ratio, spread

SAMPLES = st.lists(st.floats(min_value=0.001, max_value=1e9), min_size=1, max_size=9)


def test_median_and_ends() -> None:
    found = spread([3.0, 1.0, 2.0])
    assert (found.median, found.lowest, found.highest) == (2.0, 1.0, 3.0)
    assert found.samples == (3.0, 1.0, 2.0)


def test_median_of_an_even_count_lies_between() -> None:
    assert spread([1.0, 2.0, 3.0, 10.0]).median == 2.5


@pytest.mark.parametrize(("fraction", "wanted"), [(0.0, 1.0), (0.25, 2.0), (0.5, 3.0), (0.75, 4.0), (1.0, 5.0)])
def test_quartiles_of_five_rounds_are_samples(fraction: float, wanted: float) -> None:
    assert spread([5.0, 3.0, 1.0, 4.0, 2.0]).quantile(fraction) == wanted


def test_quantile_between_two_samples() -> None:
    assert spread([1.0, 2.0]).quantile(0.75) == 1.75


@given(SAMPLES)
def test_quantiles_stay_within_the_samples_and_in_order(samples: list[float]) -> None:
    found = spread(samples)
    cuts = [found.quantile(fraction / 10) for fraction in range(11)]
    assert cuts[0] == found.lowest
    assert cuts[-1] == found.highest
    slack = found.highest * 1e-12
    assert all(one <= other + slack for one, other in itertools.pairwise(cuts))


def test_no_samples_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one round"):
        spread([])


def test_ratio_pairs_the_rounds() -> None:
    # A slow second round on both sides leaves the ratio alone; the ratio of the medians would be 3.
    ratio = paired_ratio(spread([300.0, 100.0, 320.0]), spread([100.0, 50.0, 100.0]))
    assert ratio is not None
    assert ratio.samples == (3.0, 2.0, 3.2)


def test_ratio_to_nothing_is_none() -> None:
    assert paired_ratio(spread([1.0, 2.0]), spread([1.0, 0.0])) is None


def test_ratio_of_unequal_rounds_is_an_error() -> None:
    with pytest.raises(ValueError, match="same rounds"):
        paired_ratio(spread([1.0]), spread([1.0, 2.0]))
