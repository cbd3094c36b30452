"""Batches of a rollout, and which hosts a scale-up takes for added."""

from __future__ import annotations

import pytest
from mqctl.commands.rollout.scale_up import is_added
from mqctl.errors import CommandError, UsageError
from mqctl.inventory import Host
from mqctl.plan.plan import Change
from mqctl.playbook.rollout import batch_of, require_no_hand
from mqctl.rollout.cluster_plan import Plan


@pytest.mark.parametrize("text", ["", "1", "20", "300", "1%", "25%", "100%"])
def test_a_batch_is_a_number_of_hosts_or_a_percentage(text: str) -> None:
    assert batch_of(text) == text


@pytest.mark.parametrize("text", ["0", "-1", "0%", "101%", "%", "half", "2.5", "10 %", "²"])
def test_anything_else_is_wrong_usage(text: str) -> None:
    with pytest.raises(UsageError, match="neither a number of hosts nor a percentage"):
        batch_of(text)


START = ("service", "start")
BOOT = ("service at boot", "enable")


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ([], False),
        ([("a", "option limits.link-credit", "change")], False),
        ([("", "release", "change")], False),
        ([("", "release", "create")], True),
        # Everything was installed, and the rollout was killed before a broker had been started.
        ([("a", *BOOT), ("a", *START), ("b", *BOOT), ("b", *START)], True),
        # Somebody stopped one of them, or added an instance: this host is not new.
        ([("a", *START), ("b", *START)], False),
        ([("b", *BOOT), ("b", *START)], False),
    ],
)
def test_hosts_on_which_no_rollout_ended_well_are_added(own: list[tuple[str, str, str]], expected: bool) -> None:
    host = Host("mq1", "main", {"mq_instances": [{"name": "a"}, {"name": "b"}]}, {})
    other = Change("mq2", "", "release", "create")
    changes = [other, *(Change("mq1", instance, what, action) for instance, what, action in own)]
    assert is_added(Plan("main", changes, {}, {}), host) is expected


def test_what_only_a_person_can_mend_is_told_before_anything_is_begun() -> None:
    usual = Change("mq1", "a", "service", "start")
    require_no_hand([usual])
    odd = [
        Change("mq1", "", "folder /etc/mq", "move away", "link", "folder"),
        Change("mq2", "a", "identity", "by hand", "it was made on another machine"),
    ]
    with pytest.raises(CommandError, match="nothing was changed on any host") as raised:
        require_no_hand([usual, *odd])
    assert raised.value.what.startswith(
        "mq1: folder /etc/mq: link, move away; mq2: identity: it was made on another machine, by hand"
    )
