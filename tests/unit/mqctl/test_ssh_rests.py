"""How long a host is left alone that let nobody in."""

from __future__ import annotations

import pytest
from mqctl.errors import LoginRefused, Unreachable
from mqctl.ssh.rests import Rest

AWAY, REFUSED = (
    Unreachable("mq1", "connection refused", "ping it"),
    LoginRefused("mq1", "nobody is let in", "ssh to it"),
)


@pytest.mark.parametrize(
    ("faults", "lengths_s"),
    [
        ([AWAY, AWAY, AWAY], [5, 5, 5]),
        ([REFUSED, REFUSED, REFUSED, REFUSED, REFUSED], [5, 10, 20, 30, 30]),
        ([REFUSED, REFUSED, AWAY, REFUSED], [5, 10, 5, 5]),
    ],
)
def test_refusals_one_after_another_are_followed_by_longer_rests(
    faults: list[Unreachable], lengths_s: list[float]
) -> None:
    rest, now_s, lengths = None, 0.0, []
    for fault in faults:
        rest = Rest.after(fault, rest, now_s)
        lengths.append(rest.until_s - now_s)
        now_s = rest.until_s
    assert lengths == lengths_s


@pytest.mark.parametrize("fault", [AWAY, REFUSED])
def test_who_asks_meanwhile_hears_what_was_met(fault: Unreachable) -> None:
    rest = Rest.after(fault, None, 100)
    with pytest.raises(type(fault)) as caught:
        rest.check(104.9, "mq2")
    assert (caught.value.host, caught.value.why, caught.value.attempt) == ("mq2", fault.why, fault.attempt)
    rest.check(105, "mq2")
