"""Two names for one host."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.config.inventory.inventory import check_inventory

from tests.unit.config.inventory.test_inventory import variables

SAME: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    ("mq1", {"ansible_host": "192.0.2.11"}, "mq2", {"ansible_host": "192.0.2.11"}),
    ("mq1", {"ansible_host": "192.0.2.11"}, "mq2", {"ansible_host": "192.0.2.11", "ansible_port": 22}),
    ("mq1", {"ansible_host": "192.0.2.11"}, "mq2", {"ansible_ssh_host": "::ffff:192.0.2.11"}),
    ("mq1", {"ansible_host": "fd00:0:0::A"}, "mq2", {"ansible_host": "[fd00::a]"}),
    ("mq1.example.org", {}, "mq2", {"ansible_host": "MQ1.Example.org."}),
    ("mq1", {"ansible_connection": "local"}, "mq2", {"ansible_connection": "ansible.builtin.local"}),
    ("mq1", {"ansible_host": "localhost", "ansible_port": "2222"}, "mq2",
     {"ansible_host": "127.0.0.1", "ansible_ssh_port": 2222}),
    ("mq1", {"ansible_host": "192.0.2.11", "ansible_port": "022"}, "mq2", {"ansible_host": "192.0.2.11"}),
    ("mq1", {"ansible_host": "root@192.0.2.11"}, "mq2", {"ansible_host": "192.0.2.11", "ansible_user": "root"}),
    ("mq1", {"ansible_host": "192.0.2.11", "ansible_port": 2222}, "mq2",
     {"ansible_host": "192.0.2.11", "ansible_ssh_common_args": "-o Port=2222"}),
    ("mq1", {"ansible_host": "192.0.2.11", "ansible_ssh_extra_args": "-p2222"}, "mq2",
     {"ansible_host": "192.0.2.11", "ansible_ssh_args": '-oPort="2222" -C -o ControlPersist=60s'}),
    # The first that ssh is told holds.
    ("mq1", {"ansible_host": "192.0.2.11", "ansible_port": 22, "ansible_ssh_common_args": "-p 2222"}, "mq2",
     {"ansible_host": "192.0.2.11"}),
    ("mq1", {"ansible_host": "192.0.2.11", "ansible_ssh_common_args": "-o StrictHostKeyChecking=no -i key -l root -qv"},
     "mq2", {"ansible_host": "192.0.2.11", "ansible_ssh_extra_args": "-o 'ServerAliveInterval 5'"}),
    ("mq1", {"ansible_ssh_common_args": "-o HostName=192.0.2.11"}, "mq2", {"ansible_host": "192.0.2.11"}),
    ("mq1", {"ansible_host": "10.0.0.5", "ansible_ssh_common_args": "-J deploy@gate:22"}, "mq2",
     {"ansible_host": "10.0.0.5", "ansible_ssh_extra_args": "-o ProxyJump=GATE"}),
    ("mq1", {"ansible_host": "10.0.0.5", "ansible_ssh_common_args": "-o ProxyJump=none"}, "mq2",
     {"ansible_host": "10.0.0.5"}),
    ("mq1", {"ansible_connection": "local"}, "mq2", {"ansible_host": "localhost"}),
    ("mq1", {"ansible_connection": "local"}, "mq2", {"ansible_host": "::ffff:127.0.0.1", "ansible_user": "root"}),
]  # fmt: skip
APART: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"ansible_host": "192.0.2.11"}, {"ansible_host": "192.0.2.12"}),
    ({"ansible_host": "192.0.2.11", "ansible_port": 2201}, {"ansible_host": "192.0.2.11", "ansible_port": 2202}),
    ({"ansible_host": "10.0.0.5", "ansible_ssh_common_args": "-J a"},
     {"ansible_host": "10.0.0.5", "ansible_ssh_common_args": "-J b"}),
    ({"ansible_connection": "local", "ansible_host": "192.0.2.11"},
     {"ansible_connection": "local", "ansible_host": "192.0.2.12"}),
    ({"ansible_host": "{{ lookup }}"}, {"ansible_host": "{{ lookup }}"}),
    ({"ansible_host": "10.0.0.5", "ansible_ssh_common_args": "-J a:22"},
     {"ansible_host": "10.0.0.5", "ansible_ssh_common_args": "-J a:2222"}),
    ({"ansible_host": "10.0.0.5", "ansible_ssh_common_args": "-J a,b"},
     {"ansible_host": "10.0.0.5", "ansible_ssh_common_args": "-J b,a"}),
    ({"ansible_host": "10.0.0.5", "ansible_ssh_common_args": "-F one"},
     {"ansible_host": "10.0.0.5", "ansible_ssh_common_args": "-F two"}),
    ({"ansible_host": "10.0.0.5", "ansible_ssh_common_args": "-o BindInterface=one"}, {"ansible_host": "10.0.0.5"}),
    ({"ansible_host": "10.0.0.5", "ansible_ssh_common_args": "-o 'ProxyCommand=nc one'"},
     {"ansible_host": "10.0.0.5", "ansible_ssh_common_args": "-o 'ProxyCommand=nc two'"}),
    ({"ansible_host": "10.0.0.5", "ansible_ssh_common_args": "it's"}, {"ansible_host": "10.0.0.5"}),
    ({"ansible_host": "localhost", "ansible_port": 2222}, {"ansible_connection": "local"}),
]  # fmt: skip


@pytest.mark.parametrize(("one", "own", "other", "others"), SAME)
@pytest.mark.parametrize("cluster", ["orders", "payments"])
def test_two_names_that_lead_to_one_host(
    one: str, own: dict[str, Any], other: str, others: dict[str, Any], cluster: str
) -> None:
    hosts = {one: variables(**own), other: variables(**others, mq_cluster_name=cluster)}
    (fault,) = check_inventory(hosts)
    assert fault.path == "ansible_host"
    where = "" if cluster == "orders" else " of cluster orders"
    assert f"which is {one}{where} already" in fault.why
    assert fault.why.endswith(f"remove one of them (host {other})")


@pytest.mark.parametrize(("own", "others"), APART)
def test_what_may_be_hosts_of_their_own(own: dict[str, Any], others: dict[str, Any]) -> None:
    assert check_inventory({"mq1": variables(**own), "mq2": variables(**others)}) == []


def test_hosts_that_are_no_brokers_may_be_anywhere() -> None:
    assert check_inventory({"mq1": variables(ansible_host="192.0.2.11"), "jump": {"ansible_host": "192.0.2.11"}}) == []
