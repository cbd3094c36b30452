"""The role's template of broker.toml writes what the option models mean: both are rendered and compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader  # type: ignore[import-untyped]
from ansible.template import Templar, trust_as_template  # type: ignore[import-untyped]
from mqbroker.config.declarations.variables import HostVariables, Instance
from mqbroker.config.file.completeness import END, PROMISE
from mqbroker.config.file.load import parse
from mqbroker.config.inventory.inventory import host_variables
from mqbroker.config.inventory.tables import render_toml
from mqbroker.config.slices import BrokerOptions

TEMPLATE = Path(__file__).resolve().parents[2] / "roles" / "broker" / "templates" / "broker.toml.j2"
BASE = {"mq_cluster_name": "orders", "mq_cluster_secret": "0123456789abcdef"}


def by_role(variables: HostVariables, instance: Instance, address: str, host: str = "mq1") -> str:
    """The template through Ansible, with the variables that the role has at that point."""
    values: dict[str, Any] = {
        "ansible_managed": "Ansible managed",
        "broker_options": {**variables.mq_broker_options, "grouping_handler": variables.mq_grouping_handler},
        "broker_tls": variables.mq_tls != "off",
        "broker_listeners": variables.mq_listeners,
        "broker_address_settings": variables.mq_address_settings,
        "broker_security_settings": variables.mq_security_settings,
        "broker_addresses": variables.mq_addresses,
        "broker_diverts": variables.mq_diverts,
        "broker_connectors": variables.mq_connectors,
        "broker_broadcast_groups": variables.mq_broadcast_groups,
        "broker_discovery_groups": variables.mq_discovery_groups,
        "broker_cluster_connections": variables.mq_cluster_connections,
        "broker_connection_routers": variables.mq_connection_routers,
        "broker_allow_plaintext": variables.mq_allow_plaintext,
        "broker_metrics_port": variables.mq_metrics_port,
        "broker_metrics_local_bind_address": variables.mq_metrics_local_bind_address,
        "inventory_hostname": host,
        "__broker_instance": instance.model_dump(),
        "__broker_bind_address": address,
    }
    text = trust_as_template(TEMPLATE.read_text(encoding="utf-8"))
    made = Templar(loader=DataLoader(), variables=values).template(text)
    assert isinstance(made, str)
    return made


CASES: dict[str, tuple[dict[str, Any], Instance, str]] = {
    "default": ({}, Instance(name="default"), "127.0.0.1"),
    "card": (
        {"mq_cluster_interface": "eth1", "mq_allow_plaintext": True},
        Instance(name="second", port_offset=10),
        "198.51.100.11",
    ),
    "options of every table": (
        {
            "mq_broker_options": {
                "node": {"stop_timeout_ms": 400, "log_format": "json"},
                "journal": {"journal_sync": False, "journal_on_damage": "truncate"},
                "limits": {"link_credit": 7},
                "metrics": {"connections_max": 3},
            },
            "mq_address_settings": [
                {"match": "#", "auto_create_queues": False, "redelivery_delay_multiplier": 2.5},
                {"match": "orders.*", "dead_letter_address": "DLQ"},
            ],
            "mq_security_settings": [
                {"match": "#", "send": [], "consume": ["client", "audit"]},
                {"match": "orders.#", "send": ["shop"]},
            ],
            "mq_addresses": [
                {
                    "name": "orders",
                    "routing_types": ["ANYCAST", "MULTICAST"],
                    "anycast": [{"name": "orders", "max_consumers": 5, "filter": "kind = 'é\"'"}, {"name": "o2"}],
                    "multicast": [{"name": "audit", "durable": False}],
                },
                {"name": "prices"},
            ],
            "mq_diverts": [
                {
                    "name": "big",
                    "address": "orders",
                    "forwarding_address": "audit",
                    "filter": "kind = 'é\"'",
                    "exclusive": True,
                },
            ],
        },
        Instance(name="default"),
        "127.0.0.1",
    ),
    "discovery": (
        {
            "mq_cluster_interface": "eth1",
            "mq_allow_plaintext": True,
            "mq_connectors": [
                {"name": "cluster", "port": 5673},
                {"name": "other", "port": 5674, "host": "mq1.example.org", "tls_enabled": True},
            ],
            "mq_broadcast_groups": [
                {"name": "lan", "group_address": "231.7.7.7", "group_port": 9876, "connector_ref": "cluster"},
            ],
            "mq_discovery_groups": [
                {"name": "lan", "group_address": "231.7.7.7", "group_port": 9876, "refresh_timeout": 5000},
                {
                    "name": "far",
                    "group_address": "231.7.7.8",
                    "group_port": 9876,
                    "local_bind_address": "192.0.2.11",
                },
            ],
            "mq_cluster_connections": [
                {"name": "all", "connector_ref": "cluster", "discovery_group_ref": "lan", "max_hops": 2},
                {"name": "far", "connector_ref": "cluster", "static_connectors": ["other"], "address": "far."},
            ],
            "mq_grouping_handler": {"type": "LOCAL", "address": "orders.", "group_timeout": 60_000},
            "mq_broker_options": {"scale_down": {"enabled": True, "connectors": ["other"], "group_name": "east"}},
        },
        Instance(name="second", port_offset=10),
        "198.51.100.11",
    ),
    "no TLS": ({"mq_tls": "off"}, Instance(name="default"), "127.0.0.1"),
    "certificates of nodes where a listener has none": (
        {
            "mq_tls": "provided",
            "mq_tls_certificate_file": "/c",
            "mq_tls_key_file": "/k",
            "mq_tls_ca_file": "/a",
            "mq_listeners": [
                {"name": "a", "port": 5671, "tls_client_auth": "optional"},
                {"name": "b", "port": 5672, "allow_plaintext": True},
                {"name": "c", "port": 5674, "tls_certificate_file": "/own.pem", "tls_key_file": "/own.key"},
                {"name": "d", "port": 5673, "kind": "cluster"},
                {"name": "e", "port": 5675, "kind": "cluster", "tls_client_auth": "none"},
            ],
            "mq_connectors": [
                {"name": "one", "port": 5673},
                {"name": "two", "port": 5672},
                {"name": "three", "port": 5674},
                {"name": "four", "port": 5673, "tls_enabled": False},
            ],
        },
        Instance(name="second", port_offset=10),
        "198.51.100.11",
    ),
    "discovery without multicast": (
        {
            "mq_cluster_interface": "eth1",
            "mq_allow_plaintext": True,
            "mq_connectors": [{"name": "cluster", "port": 5673}],
            "mq_broadcast_groups": [
                {"name": "files", "discovery": "file", "directory": "/srv/mq", "connector_ref": "cluster"},
                {
                    "name": "talk",
                    "discovery": "gossip",
                    "local_bind_port": 7000,
                    "peers": ["192.0.2.1:7000", "192.0.2.2:7010"],
                    "connector_ref": "cluster",
                },
            ],
            "mq_discovery_groups": [
                {"name": "files", "discovery": "file", "directory": "/srv/mq"},
                {"name": "names", "discovery": "dns", "names": ["_mq._tcp.example.org"]},
                {"name": "talk", "discovery": "gossip", "local_bind_port": 7000},
            ],
        },
        Instance(name="second", port_offset=10),
        "198.51.100.11",
    ),
    "routers": (
        {
            "mq_connectors": [{"name": "other", "host": "mq2.example.org", "port": 5672}],
            "mq_connection_routers": [
                {
                    "name": "spread",
                    "key_type": "CLIENT_ID",
                    "key_filter": "^.{3}",
                    "static_connectors": ["other"],
                    "local_target_enabled": True,
                    "policy": "CONSISTENT_HASH",
                },
                {"name": "mine", "local_target_filter": "a|b"},
            ],
            "mq_listeners": [{"name": "clients", "port": 5672, "router": "spread"}],
        },
        Instance(name="default"),
        "127.0.0.1",
    ),
    "routers of a cluster": (
        {
            "mq_connectors": [{"name": "cluster", "port": 5673}, {"name": "clients", "port": 5672}],
            "mq_discovery_groups": [{"name": "lan", "group_address": "231.7.7.7", "group_port": 9876}],
            "mq_cluster_connections": [
                {
                    "name": "all",
                    "connector_ref": "cluster",
                    "client_connector_ref": "clients",
                    "discovery_group_ref": "lan",
                }
            ],
            "mq_connection_routers": [
                {"name": "spread", "cluster_connection": "all", "cache_timeout": 0, "cache_persisted": True}
            ],
        },
        Instance(name="second", port_offset=10),
        "198.51.100.11",
    ),
    "no metrics": ({"mq_metrics_port": 0}, Instance(name="second", port_offset=10), "127.0.0.1"),
    "metrics elsewhere": (
        {"mq_metrics_port": 9000, "mq_metrics_local_bind_address": "::1"},
        Instance(name="second", port_offset=10),
        "127.0.0.1",
    ),
    "listeners of one's own": (
        {
            "mq_listeners": [
                {"name": "a", "port": 1, "sasl_mechanisms": ["PLAIN", "ANONYMOUS"], "local_bind_address": "::1"},
                {"name": "b", "port": 2, "kind": "cluster", "backlog": 5, "allow_plaintext": True},
            ]
        },
        Instance(name="x", port_offset=100),
        "127.0.0.1",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_template_means_what_the_models_mean(case: str) -> None:
    changes, instance, address = CASES[case]
    variables = host_variables({**BASE, **changes})
    made = by_role(variables, instance, address)
    options = parse(made)
    assert isinstance(options, BrokerOptions), (made, [str(fault) for fault in options])
    assert options == parse(render_toml(variables, instance, "mq1", address))
    assert made.startswith(f"#\n# Ansible managed\n#\n{PROMISE}\n[node]\n")
    assert made.endswith(f"\n{END}\n")


@pytest.mark.parametrize(
    ("host", "instance", "name"),
    [
        ("mq1.example.org", Instance(name="default"), "mq1.example.org"),
        ("mq1", Instance(name="second"), "mq1-second"),
        ("mq1", Instance(name="second", node_name="left"), "left"),
        ("2001:db8::1", Instance(name="default"), "2001-db8--1"),
        ("::1", Instance(name="default"), "1"),
        ("_h" * 40, Instance(name="second"), ("h_" * 40)[:56] + "-second"),
    ],
)
def test_a_node_is_called_as_its_host(host: str, instance: Instance, name: str) -> None:
    variables = host_variables(BASE)
    made = [
        parse(text)
        for text in (by_role(variables, instance, "127.0.0.1", host), render_toml(variables, instance, host))
    ]
    assert [one.node.name for one in made if isinstance(one, BrokerOptions)] == [name, name]
