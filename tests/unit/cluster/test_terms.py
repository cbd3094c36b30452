"""The highest term of each node: it only grows, and is remembered within bounds."""

from __future__ import annotations

from mqbroker.cluster.terms import TERMS_MAX, HighestTerms


def test_it_only_grows() -> None:
    terms = HighestTerms()
    assert [terms.hear("a", term) for term in (0, 2, 1, 2, 3)] == [False, True, False, False, True]
    assert (terms.of("a"), terms.of("b")) == (3, 0)


def test_as_many_nodes_are_remembered_as_there_may_be() -> None:
    terms = HighestTerms()
    for number in range(TERMS_MAX + 1):
        assert terms.hear(f"node-{number}", 1)
    assert [terms.of(f"node-{number}") for number in (0, 1, TERMS_MAX)] == [0, 1, 1]
