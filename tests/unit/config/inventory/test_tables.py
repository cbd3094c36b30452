"""broker.toml made from variables is read back as what was meant."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqbroker.config.declarations.variables import Instance
from mqbroker.config.file.load import parse
from mqbroker.config.inventory.inventory import host_variables
from mqbroker.config.inventory.tables import render_toml, toml_text
from mqbroker.config.slices import BrokerOptions, MetricOptions


def rendered(instance: Instance, address: str | None = None, **changes: Any) -> BrokerOptions:
    base = {"mq_cluster_name": "orders", "mq_cluster_secret": "0123456789abcdef"}
    options = parse(render_toml(host_variables({**base, **changes}), instance, "mq1", address))
    assert isinstance(options, BrokerOptions), [str(fault) for fault in options]
    return options


def test_default_instance() -> None:
    options = rendered(Instance(name="default"))
    assert options.node.name == "mq1"
    assert options.node.data_directory == "/var/lib/mq/default"
    assert options.node.admin_socket == "/run/mq/default/admin.sock"
    found = [(item.name, item.kind, item.local_bind_address, item.port) for item in options.listeners]
    assert found == [("clients", "client", "127.0.0.1", 5671), ("cluster", "cluster", "127.0.0.1", 5673)]
    place = "/etc/mq/default/tls"
    secured = [(item.tls_certificate_file, item.tls_client_auth, item.tls_client_ca_file) for item in options.listeners]
    assert secured == [
        (f"{place}/server.pem", "none", ""), (f"{place}/server.pem", "required", f"{place}/ca.pem"),
    ]  # fmt: skip


def test_offset_and_address_reach_every_listener() -> None:
    second = Instance(name="second", port_offset=10)
    options = rendered(second, "198.51.100.11", mq_cluster_interface="eth1", mq_allow_plaintext=True)
    assert [(item.local_bind_address, item.port) for item in options.listeners] == [
        ("198.51.100.11", 5682),
        ("198.51.100.11", 5683),
    ]


def test_metrics_are_served_where_the_instance_says() -> None:
    assert rendered(Instance(name="default")).metrics == MetricOptions("127.0.0.1", 9672, 32)
    second = rendered(
        Instance(name="second", port_offset=10),
        mq_metrics_local_bind_address="127.0.0.3",
        mq_broker_options={"metrics": {"connections_max": 5}},
    )
    assert second.metrics == MetricOptions("127.0.0.3", 9682, 5)
    assert rendered(Instance(name="second", port_offset=10), mq_metrics_port=0).metrics.port == 0


def test_overrides_arrive() -> None:
    options = rendered(
        Instance(name="default"),
        mq_broker_options={"limits": {"link_credit": 7}, "node": {"stop_timeout_ms": 400}},
        mq_listeners=[{"name": "a", "port": 1, "sasl_mechanisms": ["PLAIN"], "local_bind_address": "127.0.0.9"}],
    )
    assert (options.limits.link_credit, options.node.stop_timeout_ms) == (7, 400)
    assert [(item.sasl_mechanisms, item.local_bind_address) for item in options.listeners] == [
        (("PLAIN",), "127.0.0.9")
    ]


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cc"], exclude_characters="{"), max_size=30))
def test_any_text_survives_as_toml(text: str) -> None:
    options = parse(toml_text({"node": {"data_directory": f"/{text}"}}))
    assert isinstance(options, BrokerOptions)
    assert options.node.data_directory == f"/{text}"


@pytest.mark.parametrize("value", [True, 5, ["PLAIN"], 'x"y\\z\n'])
def test_values_are_toml_literals(value: Any) -> None:
    assert tomllib.loads(toml_text({"node": {"some_name": value}})) == {"node": {"some-name": value}}
