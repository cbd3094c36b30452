"""Which release a way back leaves, and how far hosts are on their way to one."""

from __future__ import annotations

import pytest
from mqctl.errors import CommandError
from mqctl.inventory import Host
from mqctl.plan.plan import Loaded, Seen, SeenInstance
from mqctl.rollout.releases import HostReleases, left_by, mixture, releases_of

A, B, C = "1-a", "2-b", "3-c"


def host(current: str, running: str = "", **before: str) -> HostReleases:
    names = {"a": A, "b": B, "c": C}
    return HostReleases("mq1", current, (running or current,), {names[name]: one for name, one in before.items()})


@pytest.mark.parametrize(
    ("hosts", "left"),
    [
        # All have one release: that is left, whatever it was before.
        ([host(B, b=A), host(B, b=A)], B),
        ([host(A)], A),
        # In the middle: the one before which the others still are. What was earlier is not asked.
        ([host(B, b=A), host(A)], B),
        ([host(A), host(C, c=B, b=A), host(B, b=A)], None),
        ([host(C, c=B, b=A), host(B, b=A)], C),
        # The link has moved and the process has not, or the other way round.
        ([host(B, A, b=A), host(A)], B),
        ([host(A, B, b=A), host(A, b=A)], B),
        # Nothing says what came first, or each came before the other once.
        ([host(B), host(A)], None),
        ([host(B, b=A), host(A, a=B)], None),
        ([], None),
    ],
)
def test_the_release_that_is_left_is_the_later_one(hosts: list[HostReleases], left: str | None) -> None:
    if left is not None:
        assert left_by(hosts) == left
        return
    with pytest.raises(CommandError, match="nothing was changed"):
        left_by(hosts)


@pytest.mark.parametrize(
    ("current", "running", "state"), [(B, B, "done"), (B, A, "half"), (A, B, "half"), (A, A, "to do")]
)
def test_a_host_is_done_when_it_runs_what_it_would_run_after_a_boot(current: str, running: str, state: str) -> None:
    assert host(current, running).state(B) == state


def test_what_runs_is_what_processes_have_recorded() -> None:
    idle, busy = SeenInstance(), SeenInstance(loaded=Loaded(A))
    seen = Seen(release=B, before={B: A}, instances={"one": idle, "two": busy})
    found = releases_of(Host("mq1", "main", {}, {}), seen)
    assert found == HostReleases("mq1", B, (A,), {B: A})
    assert mixture([found, HostReleases("mq2", B, (B,), {})]) == "1-a on mq1; 2-b on mq1, mq2"
    assert mixture([HostReleases("mq1", B, (B,), {}), HostReleases("mq2", B, (), {})]) == ""
    assert mixture([HostReleases("mq1", B, (), {}), HostReleases("mq2", A, (A,), {})]) == "1-a on mq2; 2-b on mq1"
