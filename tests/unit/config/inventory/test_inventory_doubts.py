"""What an inventory may say and hardly means."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.config.inventory.inventory import check_inventory
from mqbroker.config.inventory.inventory_doubts import doubts_of

from tests.unit.config.inventory.test_inventory import variables

GROUP = {"name": "lan", "group_address": "231.7.7.7", "group_port": 9876}
USERS = [{"name": "app", "password": "a long password", "roles": ["shop"]}, {"name": "old", "password": "another one!"}]


def doubts(**own: Any) -> list[tuple[str, str]]:
    given = variables(**own)
    if "mq_users" not in own:
        given.pop("mq_users", None)
    hosts = {"mq1": given}
    assert check_inventory(hosts) == []
    return [(one.path, one.why) for one in doubts_of(hosts)]


def test_nothing_is_doubtful_in_a_usual_one() -> None:
    assert doubts(mq_users=USERS) == []
    assert doubts() == []


def test_what_the_broker_would_doubt_is_told_with_its_variable() -> None:
    ((path, why),) = doubts(
        mq_connectors=[{"name": "cluster", "port": 5673, "host": "192.0.2.11"}],
        mq_broadcast_groups=[{**GROUP, "connector_ref": "cluster", "broadcast_period": 9000}],
        mq_discovery_groups=[GROUP], mq_cluster_interface="eth1", mq_allow_plaintext=True,
    )  # fmt: skip
    assert path == "mq_discovery_groups.0.refresh_timeout"
    assert "less than two broadcast periods of 9000 ms" in why


@pytest.mark.parametrize(
    ("rows", "own", "expected"),
    [
        ([{"match": "#", "send": ["shop"], "consume": ["client"]}], {"mq_users": USERS}, []),
        ([{"match": "#", "send": ["shop"]}, {"match": "a", "consume": ["shpo", "shop"]}], {"mq_users": USERS},
         [("mq_security_settings.1.consume", "shpo")]),
        # Nobody knows who they are, or what Ansible alone knows.
        ([{"match": "#", "send": ["shpo"]}], {}, []),
        ([{"match": "#", "send": ["shpo"]}], {"mq_users": [{**USERS[0], "roles": ["{{ roles }}"]}]}, []),
        ([{"match": "#", "send": ["{{ role }}"]}], {"mq_users": USERS}, []),
        # Who logs in by ANONYMOUS has the role of the listener.
        ([{"match": "#", "send": ["guest"]}],
         {"mq_users": USERS, "mq_listeners": [{"name": "clients", "port": 5672, "sasl_mechanisms": ["ANONYMOUS"],
                                               "anonymous_role": "guest"}]}, []),
    ],
)  # fmt: skip
def test_a_role_that_no_user_has(
    rows: list[dict[str, Any]], own: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    found = doubts(mq_security_settings=rows, **own)
    assert [path for path, _ in found] == [path for path, _ in expected]
    assert all(
        f"the role {role}, which no user in mq_users has" in why
        for (_, why), (_, role) in zip(found, expected, strict=True)
    )


def test_what_many_hosts_share_is_told_once() -> None:
    own = variables(mq_users=USERS, mq_security_settings=[{"match": "#", "send": ["shpo"]}])
    (found,) = doubts_of({"mq1": own, "mq2": own})
    assert "mq1" in found.why
    assert "mq2" in found.why
