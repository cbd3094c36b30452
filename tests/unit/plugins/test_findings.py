"""Every finding about a host, one by one, and all at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.mqops.cluster.plugins.module_utils.findings import Wishes, find
from ansible_collections.mqops.cluster.plugins.module_utils.host import Facts, Python
from ansible_collections.mqops.cluster.plugins.module_utils.network import Card
from ansible_collections.mqops.cluster.plugins.module_utils.sockets import Listening

PYTHON = Python("/usr/bin/python3", "3.11", "CPython", "2.36", has_venv=True, has_packaging=True)
FACTS = Facts(
    os_id="debian",
    os_version="12",
    os_name="Debian GNU/Linux 12 (bookworm)",
    machine="x86_64",
    has_systemd=True,
    python=PYTHON,
    cards={
        "lo": Card("lo", True, ("127.0.0.1",)),
        "eth1": Card("eth1", True, ("198.51.100.11",)),
    },
    sockets=[Listening("0.0.0.0", 22, "sshd (process 7)"), Listening("127.0.0.1", 5672, "mqbroker (process 9)", True)],
    is_clock_synchronised=True,
    disk_free_bytes={"/opt/mq": 10 << 30, "/var/lib/mq": 10 << 30},
    users={"root": 0, "other": 777},
)
LISTENERS = [{"name": "clients", "kind": "client", "port": 5672}, {"name": "cluster", "kind": "cluster", "port": 5673}]
GOSSIP = {"name": "near", "discovery": "gossip", "local_bind_port": 5675, "peers": ["198.51.100.12:5675"]}
WISHES = Wishes(
    instances=[{"name": "default"}],
    listeners=LISTENERS,
    manifest={"python": "3.11", "machine": "x86_64", "glibc": "2.28"},
    disk_free_bytes_min=1 << 30,
    clock={"offset_ms": 0.2, "uncertainty_ms": 0.3},
)


def of(facts: dict[str, Any] | None = None, wishes: dict[str, Any] | None = None) -> list[tuple[str, str, str]]:
    found = find(replace(FACTS, **facts or {}), replace(WISHES, **wishes or {}))
    return [(one["level"], one["check"], one["message"]) for one in found]


def test_a_good_host_has_no_findings() -> None:
    assert of() == []


CASES: list[tuple[str, dict[str, Any], dict[str, Any], str, str]] = [
    ("another system", {"os_version": "13", "os_name": "Debian 13"}, {}, "error os", "Debian 13 is not a tested one"),
    ("another system, wanted", {"os_id": "x"}, {"os_unsupported": True}, "warning os", "tested is Debian 12"),
    ("no systemd", {"has_systemd": False}, {}, "error os", "systemd does not run"),
    ("no python", {"python": None}, {}, "error python", "install python3 python3-venv python3-packaging"),
    ("no venv", {"python": replace(PYTHON, has_venv=False)}, {}, "error python", "install the packages python3-venv"),
    ("no packaging", {"python": replace(PYTHON, has_packaging=False)}, {}, "error python", "python3-packaging"),
    ("no CA", {}, {"tls_missing": ["/c/trust.pem"]}, "error certificates", "/c/trust.pem cannot be found"),
    ("keys", {}, {"tls_faults": ["k is not the key of c"]}, "error certificates", "k is not the key of c"),
    ("no nft", {"has_nft": False}, {"firewall": True}, "error firewall", "install the package nftables"),
    ("no bundle", {}, {"manifest": {}}, "error bundle", "mq_bundle is not set; build a bundle"),
    ("bundle not there", {}, {"manifest": {}, "bundle": "/b"}, "error bundle", "/b has no readable manifest.json"),
    ("newer python", {"python": replace(PYTHON, version="3.13")}, {}, "error bundle", "for CPython 3.11, /usr/bin/py"),
    ("pypy", {"python": replace(PYTHON, implementation="PyPy")}, {}, "error bundle", "is PyPy 3.11"),
    ("other machine", {"machine": "aarch64"}, {}, "error bundle", "for x86_64, this host is aarch64"),
    ("old glibc", {"python": replace(PYTHON, glibc="2.9")}, {}, "error bundle", "needs glibc 2.28, this host has 2.9"),
    ("no glibc", {"python": replace(PYTHON, glibc="")}, {}, "error bundle", "this host has none"),
    ("unsynchronised", {"is_clock_synchronised": False}, {}, "warning clock", "not synchronised"),
    ("clock ahead", {}, {"clock": {"offset_ms": 1500, "uncertainty_ms": 99}}, "error clock", "1.5 s ahead of"),
    ("clock behind", {}, {"clock": {"offset_ms": -9e6, "uncertainty_ms": 1}}, "error clock", "9000.0 s behind"),
    ("no ip", {"cards": None}, {}, "error network", "install the package iproute2"),
    ("no card", {}, {"cluster_interface": "eth7"}, "error network", "eth7 is no network card"),
    ("no address", {}, {"local_bind_address": "198.51.100.9"}, "error network", "no address of this host"),
    ("plain", {}, {"cluster_interface": "eth1"}, "error plaintext", "clients is reachable from the network without"),
    (
        "plain, wanted", {}, {"cluster_interface": "eth1", "allow_plaintext": True},
        "warning plaintext", "cluster is reachable from the network",
    ),
    (
        "plain for one listener", {},
        {"listeners": [{"name": "open", "port": 1, "local_bind_address": "0.0.0.0", "allow_plaintext": True}]},
        "warning plaintext", "open is reachable",
    ),
    (
        "port taken", {"sockets": [Listening("0.0.0.0", 5673, "nginx (process 3)")]}, {},
        "error ports", "5673 of instance default is taken by nginx (process 3) on 0.0.0.0",
    ),
    (
        "port of metrics taken", {"sockets": [Listening("127.0.0.1", 9682, "prometheus")]},
        {"metrics_port": 9672, "instances": [{"name": "b", "port_offset": 10}]},
        "error ports", "9682 of instance b is taken by prometheus",
    ),
    (
        "port of gossip taken", {"sockets": [Listening("0.0.0.0", 5685, "nginx")]},
        {"discovery_groups": [GOSSIP], "instances": [{"name": "b", "port_offset": 10}]},
        "error ports", "5685 of instance b is taken by nginx",
    ),
    (
        "port of gossip that is only announced by taken", {"sockets": [Listening("198.51.100.11", 5675, "nginx")]},
        {"broadcast_groups": [{**GOSSIP, "local_bind_address": "198.51.100.11"}]},
        "error ports", "5675 of instance default is taken by nginx",
    ),
    (
        "gossip wants the port of a listener", {}, {"discovery_groups": [{**GOSSIP, "local_bind_port": 5673}]},
        "error instances", "both want port 5673",
    ),
    (
        "port taken whatever the address", {"sockets": [Listening("::", 5673, "nginx")], "cards": None}, {},
        "error ports", "5673 of instance default is taken by nginx",
    ),
    ("instance twice", {}, {"instances": [{"name": "a"}, {"name": "a", "port_offset": 10}]}, "error instances", "a is"),
    (
        "instances collide", {}, {"instances": [{"name": "a"}, {"name": "b", "port_offset": 1}]},
        "error instances", "instances a and b both want port 5673",
    ),
    ("port too high", {}, {"instances": [{"name": "a", "port_offset": 60000}]}, "error instances", "makes port 65672"),
    ("disk full", {"disk_free_bytes": {"/var/lib/mq": 5 << 20}}, {}, "error disk", "/var/lib/mq has 5 MiB free"),
    ("uid taken", {}, {"uid": 777}, "error user", "mq_uid 777 belongs to the user other"),
    ("other uid", {"users": {"mq": 990}}, {"uid": 991}, "error user", "mq has uid 990, mq_uid wants 991"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "wishes", "expected", "message"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_finding(facts: dict[str, Any], wishes: dict[str, Any], expected: str, message: str) -> None:
    found = of(facts, wishes)
    assert [one for one in found if f"{one[0]} {one[1]}" == expected and message in one[2]], found


GOOD: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (
        "TLS beyond loopback", {},
        {"cluster_interface": "eth1",
         "listeners": [{"name": "a", "port": 1, "tls_certificate_file": "/c", "tls_key_file": "/k"}]},
    ),
    ("a slow connection is no offset", {}, {"clock": {"offset_ms": 1800, "uncertainty_ms": 900}}),
    ("nothing is known of the clock", {"is_clock_synchronised": None}, {"clock": {}}),
    ("our own broker has the port", {"sockets": [Listening("127.0.0.1", 5672, "mqbroker", True)]}, {}),
    ("the port is free on our address", {"sockets": [Listening("198.51.100.11", 5672, "nginx")]}, {}),
    (
        "our own broker has the port of gossip, which two groups share",
        {"sockets": [Listening("127.0.0.1", 5675, "mqbroker", True)]},
        {"broadcast_groups": [GOSSIP], "discovery_groups": [{**GOSSIP, "name": "far"}]},
    ),
    (
        "the port of gossip is free on the address of the group",
        {"sockets": [Listening("127.0.0.1", 5675, "nginx")]},
        {"discovery_groups": [{**GOSSIP, "local_bind_address": "198.51.100.11"}]},
    ),
    (
        "groups of other kinds take no port from TCP", {"sockets": [Listening("0.0.0.0", 5675, "nginx")]},
        {"broadcast_groups": [{"name": "m", "group_address": "239.1.2.3", "local_bind_port": 5675}]},
    ),
    ("offsets keep instances apart", {}, {"instances": [{"name": "a"}, {"name": "b", "port_offset": 10}]}),
    ("two addresses share a port", {}, {
        "listeners": [
            {"name": "a", "port": 1, "local_bind_address": "127.0.0.1"},
            {"name": "b", "port": 1, "local_bind_address": "127.0.0.2"},
        ]
    }),
    ("no offset is none", {}, {"instances": [{"name": "a", "port_offset": None}]}),
    ("the uid is right", {"users": {"mq": 990}}, {"uid": 990}),
]  # fmt: skip


@pytest.mark.parametrize(("facts", "wishes"), [case[1:] for case in GOOD], ids=[case[0] for case in GOOD])
def test_no_finding(facts: dict[str, Any], wishes: dict[str, Any]) -> None:
    assert of(facts, wishes) == []


def test_no_finding_hides_another_and_errors_come_first() -> None:
    found = of(
        {"os_id": "x", "python": None, "is_clock_synchronised": False, "disk_free_bytes": {"/opt/mq": 0}},
        {"manifest": {}, "cluster_interface": "eth1", "local_bind_address": "198.51.100.11", "uid": 777,
         "clock": {"offset_ms": 5000, "uncertainty_ms": 1}, "instances": [{"name": "a"}, {"name": "a"}]},
    )  # fmt: skip
    checks = [check for level, check, _ in found if level == "error"]
    assert set(checks) == {"os", "python", "bundle", "clock", "network", "plaintext", "disk", "user", "instances"}
    levels = [level for level, _, _ in found]
    assert levels == sorted(levels)
    assert "warning" in levels


@pytest.mark.parametrize(
    ("own", "checks"),
    [({}, []), ({"allow_plaintext": False}, []), ({"allow_plaintext": True}, ["plaintext"]),
     ({"local_bind_address": "127.0.0.1", "allow_plaintext": True}, [])],
)  # fmt: skip
def test_listeners_with_the_certificate_of_their_node(own: dict[str, Any], checks: list[str]) -> None:
    listeners = [{"name": "clients", "kind": "client", "port": 5671, **own}]
    found = of(wishes={"tls": True, "listeners": listeners, "cluster_interface": "eth1"})
    assert [check for _, check, _ in found] == checks
