"""Variables of an inventory: everything wrong is found at once, before any host is touched, and no secret is shown."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mqbroker.base.errors import ConfigFault
from mqbroker.config.declarations import catalogue
from mqbroker.config.declarations.variables import HostVariables
from mqbroker.config.file.load import parse
from mqbroker.config.inventory.inventory import check_inventory, host_variables
from mqbroker.config.inventory.tables import render_toml
from mqbroker.config.slices import BrokerOptions

SECRET = "canary-cluster-secret"


def variables(**changes: Any) -> dict[str, Any]:
    good = {
        "mq_cluster_name": "orders",
        "mq_cluster_secret": SECRET,
        "mq_users": [{"name": "app", "password": "canary-user-password"}],
        "mq_tls": "off",
    }
    return {name: value for name, value in {**good, **changes}.items() if value is not None}


def faults(**changes: Any) -> dict[str, str]:
    """Faults of one host, path -> why; nothing secret may be in any of them."""
    found = check_inventory({"mq1": variables(**changes)})
    assert not [fault for fault in found if "canary" in str(fault)]
    return {fault.path: fault.why for fault in found}


def secured(**options: Any) -> dict[str, Any]:
    return {"mq_listeners": [{"name": "a", "port": 1, "tls_certificate_file": "/c", **options}]}


def test_options_of_tls_are_held_against_each_other() -> None:
    found = faults(**secured())
    assert list(found) == ["mq_listeners.0.tls_key_file"]
    found = faults(**secured(tls_key_file="/k", sasl_mechanisms=["EXTERNAL"]))
    assert list(found) == ["mq_listeners.0.sasl_mechanisms"]
    assert "set tls_client_auth to optional or required" in found["mq_listeners.0.sasl_mechanisms"]
    assert faults(**secured(tls_key_file="{{ key_of_host }}", tls_client_auth="required")) == {}
    assert faults(**secured(tls_key_file="/k")) == {}


@pytest.mark.parametrize(
    ("name", "rows", "path", "why"),
    [
        ("mq_security_settings", [{"match": "payments#"}], "mq_security_settings.0.match", "stand for whole words"),
        ("mq_address_settings", [{"match": "a.*b"}], "mq_address_settings.0.match", "stand for whole words"),
        (
            "mq_diverts",
            [{"name": "d", "address": "a", "forwarding_address": "a"}],
            "mq_diverts.0.forwarding_address",
            "",
        ),
        (
            "mq_listeners",
            [{"name": "a", "port": 5672, "anycast_prefix": "q.", "multicast_prefix": "q."}],
            "mq_listeners.0",
            "prefix",
        ),
        (
            "mq_broker_options",
            {"limits": {"max_message_size_bytes": 2**30, "global_max_size_bytes": 2**29}},
            "mq_broker_options.limits.max_message_size_bytes",
            "must not be above",
        ),
    ],
)
def test_what_the_broker_refuses_is_found_before_a_host_is_touched(name: str, rows: Any, path: str, why: str) -> None:
    found = faults(**{name: rows})
    assert [one for one, said in found.items() if one.startswith(path) and why in said], found
    # Also beside what only Ansible knows.
    assert faults(**{name: rows}, mq_local_bind_address="{{ card }}", mq_allow_plaintext=True) == found


@pytest.mark.parametrize("kept", ["abc", "{{ 2 + 1 }}", 1, "", None, -3, 2.5, True])
def test_how_many_releases_stay_is_a_number(kept: Any) -> None:
    [fault] = check_inventory({"mq1": variables() | {"release_keep": kept}})
    assert str(fault) == f"release_keep: must be a whole number, 2 or more, is {kept!r} (host mq1)"
    assert check_inventory({"mq1": variables() | {"release_keep": "4"}}) == []


def test_two_spellings_of_one_user_are_one_user() -> None:
    users = [{"name": name, "password": "canary-user-password"} for name in ("bob", "\uff42ob", "mq\u00ad-cluster")]
    found = faults(mq_users=users)
    assert found["mq_users.1.name"] == "user bob is declared twice, first as mq_users.0; remove one of them (host mq1)"
    assert "is the user of the nodes themselves" in found["mq_users.2.name"]


def test_good_inventory_has_no_faults() -> None:
    hosts = {f"mq{number}": variables(mq_cluster_interface="eth1", mq_allow_plaintext=True) for number in range(3)}
    assert check_inventory(hosts) == []


def test_everything_is_found_at_once() -> None:
    found = faults(
        mq_cluster_interfac="eth1",
        mq_cluster_name="Orders",
        mq_instances=[{"name": "a"}, {"name": "a", "port_offset": 100}],
        mq_broker_options={"limits": {"link_credit": 0}},
    )
    assert set(found) == {
        "mq_cluster_interfac",
        "mq_cluster_name",
        "mq_instances.1.name",
        "mq_broker_options.limits.link_credit",
    }
    assert found["mq_cluster_interfac"] == "unknown variable; did you mean mq_cluster_interface? (host mq1)"


def test_a_shared_fault_is_reported_once_with_its_hosts() -> None:
    hosts = {f"mq{number}": variables(mq_uid=0) for number in range(1, 21)}
    (fault,) = check_inventory(hosts)
    assert (fault.path, fault.why) == ("mq_uid", "must be at least 1, is 0 (hosts mq1, mq2, mq3 and 17 more)")


def test_hosts_outside_of_clusters_are_left_alone_but_for_typos() -> None:
    hosts = {"mq1": variables(), "jump": {"ansible_host": "192.0.2.1"}, "mq2": {"mq_cluster_nam": "orders"}}
    assert [fault.path for fault in check_inventory(hosts)] == ["mq_cluster_nam"]


def test_inventory_without_a_cluster() -> None:
    (fault,) = check_inventory({"mq1": {"ansible_host": "192.0.2.11"}})
    assert fault.path == "mq_cluster_name"
    assert "mqctl init" in fault.why


@pytest.mark.parametrize("secret", [None, "short", "changeme", 5, ["canary"]])
def test_secret_must_be_there_and_long(secret: Any) -> None:
    assert "mq_cluster_secret" in faults(mq_cluster_secret=secret)


@pytest.mark.parametrize("secret", [{"__ansible_vault": "$ANSIBLE_VAULT;1.1;AES256\n61"}, "{{ vault_secret }}"])
def test_what_only_ansible_knows_is_taken_as_right(secret: Any) -> None:
    users = [{"name": "app", "password": secret}, {"name": secret, "password": secret, "roles": [secret]}]
    assert faults(mq_cluster_secret=secret, mq_users=users, mq_uid="{{ uid }}", mq_local_bind_address="{{ a }}") == {}


def test_secrets_of_one_cluster_are_one() -> None:
    hosts = {
        "mq1": variables(),
        "mq2": variables(mq_cluster_secret="canary-another-secret"),
        "mq3": variables(mq_cluster_secret="{{ vault }}"),
        "mq4": variables(mq_cluster_name="other", mq_cluster_secret="canary-third-secret"),
    }
    (fault,) = check_inventory(hosts)
    assert fault.path == "mq_cluster_secret"
    assert "differs from that of mq1" in fault.why
    assert "canary" not in str(fault)


@pytest.mark.parametrize(
    ("users", "path"),
    [
        ({"app": "canary"}, "mq_users"),
        (["canary"], "mq_users.0"),
        ([{"name": "app"}], "mq_users.0.password"),
        ([{"name": "app", "password": 5}], "mq_users.0.password"),
        ([{"name": "app", "password": "changeme"}], "mq_users.0.password"),
        ([{"name": "app", "password": "canary", "rolls": []}], "mq_users.0.rolls"),
        ([{"name": "app", "password": "canary", "roles": []}], "mq_users.0.roles"),
        ([{"name": "app", "password": "canary", "roles": ["Admin"]}], "mq_users.0.roles"),
        ([{"name": "app", "password": "canary", "roles": ["cluster"]}], "mq_users.0.roles"),
        ([{"name": "a\nb", "password": "canary"}], "mq_users.0.name"),
        ([{"name": "mq-cluster", "password": "canary"}], "mq_users.0.name"),
        ([{"name": "app", "password": "canary"}, {"name": "app", "password": "canary"}], "mq_users.1.name"),
    ],
)
def test_users(users: Any, path: str) -> None:
    assert path in faults(mq_users=users)


@pytest.mark.parametrize(
    ("changes", "paths"),
    [
        ({"mq_instances": [{"name": "a"}, {"name": "b"}]}, {"mq_instances.1.port_offset"}),
        ({"mq_instances": [{"name": "a"}, {"name": "b", "port_offset": 1}]}, {"mq_instances.1.port_offset"}),
        ({"mq_instances": [{"name": "a"}, {"name": "b", "port_offset": 10}]}, set()),
        ({"mq_instances": [{"name": "a", "port_offset": 60000}]}, {"mq_instances.0.port_offset"}),
        ({"mq_metrics_port": 5672}, {"mq_instances.0.port_offset"}),
        ({"mq_metrics_port": "5672"}, {"mq_instances.0.port_offset"}),
        ({"mq_metrics_port": 5672, "mq_metrics_local_bind_address": "127.0.0.2"}, set()),
        ({"mq_metrics_port": 0, "mq_instances": [{"name": "a"}, {"name": "b", "port_offset": 60}]}, set()),
        (
            {"mq_metrics_port": 5733, "mq_instances": [{"name": "a"}, {"name": "b", "port_offset": 60}]},
            {"mq_instances.1.port_offset"},
        ),
        ({"mq_metrics_port": 70_000}, {"mq_instances.0.port_offset", "mq_metrics_port"}),
        ({"mq_metrics_local_bind_address": "lo"}, {"mq_metrics_local_bind_address"}),
        ({"mq_instances": []}, {"mq_instances"}),
        (
            {
                "mq_cluster_interface": "eth1",
                "mq_allow_plaintext": True,
                "mq_listeners": [
                    {"name": "a", "port": 1},
                    {"name": "b", "port": 1, "local_bind_address": "0.0.0.0"},
                    {"name": "c", "port": 1, "local_bind_address": "127.0.0.1"},
                ],
            },
            {"mq_instances.0.port_offset"},
        ),
        ({"mq_listeners": [{"name": ["x"], "port": 1}]}, {"mq_listeners.0.name"}),
        ({"mq_instances": [{"name": "A_b"}]}, {"mq_instances.0.name"}),
        ({"mq_listeners": [{"name": "a", "port": 1}, {"name": "b", "port": 1}]}, {"mq_instances.0.port_offset"}),
        (
            {
                "mq_listeners": [
                    {"name": "a", "port": 1, "local_bind_address": "127.0.0.1"},
                    {"name": "b", "port": 1, "local_bind_address": "127.0.0.2"},
                ]
            },
            set(),
        ),
    ],
)
def test_ports_of_a_host_collide_before_the_host_is_touched(changes: dict[str, Any], paths: set[str]) -> None:
    assert set(faults(**changes)) == paths


@pytest.mark.parametrize(
    ("changes", "paths"),
    [
        ({"mq_local_bind_address": "127.0.0.1"}, set()),
        ({"mq_local_bind_address": "192.0.2.11"}, {"mq_local_bind_address"}),
        ({"mq_local_bind_address": "192.0.2.11", "mq_allow_plaintext": "true"}, set()),
        ({"mq_local_bind_address": "192.0.2.11", "mq_allow_plaintext": "no"}, {"mq_local_bind_address"}),
        ({"mq_cluster_interface": "eth1"}, {"mq_cluster_interface"}),
        ({"mq_cluster_interface": "eth1", "mq_allow_plaintext": True}, set()),
        ({"mq_cluster_interface": "eth1", "mq_local_bind_address": "127.0.0.1"}, {"mq_local_bind_address"}),
        ({"mq_local_bind_address": "eth1"}, {"mq_local_bind_address"}),
        (
            {"mq_listeners": [{"name": "a", "port": 1, "local_bind_address": "192.0.2.11"}]},
            {"mq_listeners.0.local_bind_address"},
        ),
        (
            {"mq_listeners": [{"name": "a", "port": 1, "local_bind_address": "192.0.2.11", "allow_plaintext": True}]},
            set(),
        ),
        (
            {
                "mq_local_bind_address": "192.0.2.11",
                "mq_listeners": [{"name": "a", "port": 1, "tls_certificate_file": "/c", "tls_key_file": "/k"}],
            },
            set(),
        ),
    ],
)
def test_plaintext_needs_permission(changes: dict[str, Any], paths: set[str]) -> None:
    assert set(faults(**changes)) == paths


@pytest.mark.parametrize(
    ("changes", "mode", "port"),
    [
        ({}, "managed", 5671),
        ({"mq_allow_plaintext": True}, "off", 5672),
        ({"mq_allow_plaintext": "no"}, "managed", 5671),
        ({"mq_allow_plaintext": True, "mq_tls": "managed"}, "managed", 5671),
        ({"mq_tls": False}, "off", 5672),
        ({"mq_tls": "off"}, "off", 5672),
    ],
)
def test_there_is_tls_unless_somebody_says_otherwise(changes: dict[str, Any], mode: str, port: int) -> None:
    typed = host_variables(variables(**{"mq_tls": None, **changes}))
    assert (typed.mq_tls, typed.mq_listeners[0]["port"]) == (mode, port)


@pytest.mark.parametrize(
    ("changes", "paths"),
    [
        ({}, set()),
        ({"mq_tls": "on"}, {"mq_tls"}),
        ({"mq_tls_ca_file": "/a"}, {"mq_tls_ca_file"}),
        ({"mq_tls": "provided"}, {"mq_tls_certificate_file", "mq_tls_key_file", "mq_tls_ca_file"}),
        (
            {"mq_tls": "provided", "mq_tls_certificate_file": "c.pem", "mq_tls_key_file": "~/k",
             "mq_tls_ca_file": "{{ place }}/a"},
            {"mq_tls_certificate_file"},
        ),
        ({"mq_listeners": [{"name": "a", "port": 1, "kind": "cluster", "sasl_mechanisms": ["EXTERNAL"]}]}, set()),
        (
            {"mq_listeners": [{"name": "a", "port": 1, "sasl_mechanisms": ["EXTERNAL"]}]},
            {"mq_listeners.0.sasl_mechanisms"},
        ),
        ({"mq_listeners": [{"name": "a", "port": 1, "allow_plaintext": False}]}, set()),
    ],
)  # fmt: skip
def test_certificates_of_nodes(changes: dict[str, Any], paths: set[str]) -> None:
    assert set(faults(**{"mq_tls": None, "mq_local_bind_address": "192.0.2.11", **changes})) == paths


@pytest.mark.parametrize(
    ("opening", "path"),
    [
        ({"port": 9100}, ""),
        ({"port": 9100, "protocol": "udp", "sources": ["192.0.2.0/24", "198.51.100.1"]}, ""),
        ({"port": 9100, "sources": ["192.0.2.1/24"]}, "mq_firewall_open.0.sources.0"),
        ({"port": 9100, "sources": ["192.0.2.1", "2001:db8::/32"]}, "mq_firewall_open.0.sources"),
        ({"port": 0}, "mq_firewall_open.0.port"),
        ({"port": 1, "protocol": "sctp"}, "mq_firewall_open.0.protocol"),
        ({"port": 1, "source": []}, "mq_firewall_open.0.source"),
    ],
)
def test_openings_of_the_firewall(opening: dict[str, Any], path: str) -> None:
    assert list(faults(mq_firewall=True, mq_firewall_open=[opening])) == ([path] if path else [])


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({}, "mq_connectors.0.host"),
        ({"mq_connectors": [{"name": "own", "port": 5673, "host": "localhost"}]}, "mq_connectors.0.host"),
        ({"mq_connectors": [{"name": "own", "port": 5673, "host": "mq1.example.org"}]}, ""),
        ({"mq_connectors": [{"name": "own", "port": 5673, "host": "{{ ansible_host }}"}]}, ""),
        ({"mq_cluster_interface": "eth1", "mq_allow_plaintext": True}, ""),
        ({"mq_cluster_connections": []}, ""),  # nobody is told of it
    ],
)
def test_connectors_lead_to_the_host_from_the_others(changes: dict[str, Any], path: str) -> None:
    own = {"name": "own", "port": 5673}
    connection = {"name": "all", "connector_ref": "own", "static_connectors": ["one"]}
    said = {"mq_connectors": [own], "mq_cluster_connections": [connection], **changes}
    said["mq_connectors"] = [*said["mq_connectors"], {"name": "one", "port": 5673, "host": "mq1.example.org"}]
    host = variables(**said)
    assert check_inventory({"mq1": host}) == []
    found = check_inventory({"mq1": host, "mq2": host})
    assert [fault.path for fault in found] == ([path] if path else [])
    assert all("set mq_cluster_interface" in fault.why for fault in found)
    assert check_inventory({"mq1": host, "mq2": {**host, "mq_cluster_name": "another"}}) == []


def test_one_address_belongs_to_one_host() -> None:
    same = variables(mq_local_bind_address="192.0.2.11", mq_allow_plaintext=True)
    (fault,) = check_inventory({"mq1": same, "mq2": same})
    assert fault.path == "mq_local_bind_address"
    assert "the address of mq1 already" in fault.why
    everywhere = variables(mq_local_bind_address="0.0.0.0", mq_allow_plaintext=True)
    assert check_inventory({"mq1": everywhere, "mq2": everywhere}) == []


@pytest.mark.parametrize(
    ("options", "path", "why"),
    [
        ({"limits": {"link_credt": 5}}, "mq_broker_options.limits.link_credt", "did you mean link_credit?"),
        ({"limits": {"link-credit": 5}}, "mq_broker_options.limits.link-credit", "is written link_credit here"),
        ({"limits": {"link_credit": "5"}}, "mq_broker_options.limits.link_credit", "must be a whole number"),
        ({"limit": {}}, "mq_broker_options.limit", "did you mean limits?"),
        ({"x": {}}, "mq_broker_options.x", "known are journal, limits, metrics, node"),
        ({"listeners": {}}, "mq_broker_options.listeners", "is written as mq_listeners"),
        ({"node": {"name": "x"}}, "mq_broker_options.node.name", "is set by the role"),
        ({"metrics": {"port": 1}}, "mq_broker_options.metrics.port", "is written as mq_metrics_port"),
        ({"limits": 5}, "mq_broker_options.limits", "must be a table"),
    ],
)
def test_broker_options(options: Any, path: str, why: str) -> None:
    assert why in faults(mq_broker_options=options)[path]


def test_addresses_and_their_queues_are_checked_before_any_host_is_touched() -> None:
    rows = [
        {"name": "orders", "routing_types": ["ANYCAST"], "anycast": [{"name": "a", "max_consumers": -2}]},
        {"name": "orders", "anycast": [{"name": "b", "ring_sise": 3}], "multicast": [{"durable": True}]},
        {"name": "prices", "routing_types": ["MULTICAST"], "anycast": [{"name": "c"}], "multicast": [{"name": "c"}]},
        {"name": "news", "routing_types": "{{ some }}", "anycast": [{"name": "{{ other }}"}, {"name": "{{ third }}"}]},
    ]
    assert sorted(faults(mq_addresses=rows)) == [
        "mq_addresses.0.anycast.0.max_consumers", "mq_addresses.1.anycast.0.ring_sise",
        "mq_addresses.1.multicast.0.name", "mq_addresses.2.anycast", "mq_addresses.2.multicast.0.name",
    ]  # fmt: skip
    assert "add ANYCAST there" in faults(mq_addresses=rows)["mq_addresses.2.anycast"]
    assert faults(mq_addresses=[rows[2], {"name": "prices"}]).keys() >= {"mq_addresses.1.name"}
    assert faults(mq_broker_options={"addresses": {}})["mq_broker_options.addresses"].startswith(
        "is written as mq_addr"
    )


def test_security_settings_are_checked_before_any_host_is_touched() -> None:
    rows = [{"match": "#", "send": ["Shop"]}, {"match": "#"}, {"match": "a", "consumes": ["x"]}, {"send": []}]
    assert sorted(faults(mq_security_settings=rows)) == [
        "mq_security_settings.0.send.0", "mq_security_settings.1.match", "mq_security_settings.2.consumes",
        "mq_security_settings.3.match",
    ]  # fmt: skip


def test_typed_variables_of_a_good_host_and_first_fault_of_a_bad_one() -> None:
    typed = host_variables(variables(mq_uid="900"))
    assert isinstance(typed, HostVariables)
    assert (typed.mq_uid, [item.name for item in typed.mq_instances]) == (900, ["default"])
    assert "canary" not in repr(typed)
    with pytest.raises(ConfigFault, match="mq_uid"):
        host_variables(variables(mq_uid=0))


SCALARS = st.sampled_from(
    [None, True, False, -1, 0, 5, 5672, 70_000, 0.5, "", "a", "eth1", "{{ x }}", "5", "::", "::1"]
)
SHAPES = SCALARS | st.lists(SCALARS, max_size=2) | st.dictionaries(st.just("x"), SCALARS, max_size=1)
OPTIONS = st.dictionaries(
    st.sampled_from([*(entry.yaml_name for entry in catalogue.entries()), "port_offset", "password", "roles", "a-b"]),
    SHAPES,
    max_size=4,
)
VALUES = SHAPES | st.lists(OPTIONS, max_size=3) | st.dictionaries(st.sampled_from(["node", "limits", "x"]), OPTIONS)
VARIABLES = st.dictionaries(st.sampled_from([*HostVariables.model_fields, "mq_other", "other"]), VALUES, max_size=6)
NAMED = st.fixed_dictionaries(
    {"name": st.sampled_from(["a", "b"]), "port": st.integers(1, 3)},
    optional={"local_bind_address": st.sampled_from(["127.0.0.1", "::1", "127.0.0.2"]), "backlog": st.integers(0, 5)},
)
INSTANCES = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from(["a", "b"])}, optional={"port_offset": st.integers(0, 3)}),
    min_size=1,
)
LIKELY = st.fixed_dictionaries({}, optional={"mq_listeners": st.lists(NAMED, max_size=3), "mq_instances": INSTANCES})


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(["mq1", "mq2"]), VARIABLES, max_size=2))
def test_any_shape_is_checked(hosts: dict[str, dict[str, Any]]) -> None:
    assert all(isinstance(fault, ConfigFault) for fault in check_inventory(hosts))


@settings(max_examples=60, deadline=None)
@given(VARIABLES | LIKELY)
def test_what_passes_the_check_has_types_and_a_good_broker_toml(given_variables: dict[str, Any]) -> None:
    complete = variables(**given_variables)
    if "{{" in str(complete) or check_inventory({"mq1": complete}):
        return
    typed = host_variables(complete)
    for instance in typed.mq_instances:
        text = render_toml(typed, instance, "mq1", "198.51.100.11" if typed.mq_cluster_interface else None)
        assert isinstance(parse(text), BrokerOptions), text
