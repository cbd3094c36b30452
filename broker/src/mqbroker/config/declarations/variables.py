"""The `mq_*` variables that a user writes in an inventory, declared once: type, default, bounds, one sentence.

`mqctl` and the playbooks know exactly these. The model says what one variable alone may hold; what variables of one
or several hosts may hold together is in `inventory.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from mqbroker.config import patterns
from mqbroker.config.declarations.declaration import IpAddress, IpNetwork

CLIENT_PORT = 5672
CLIENT_TLS_PORT = 5671
CLUSTER_PORT = 5673
METRICS_PORT = 9672
LOOPBACK = "127.0.0.1"
CLUSTER_USER = "mq-cluster"
SECRET_NAMES = frozenset({"mq_cluster_secret", "mq_users"})

# The role decides these from the instance; an override would tear unit file, directories and broker.toml apart.
OWNED_BY_ROLE = {
    "node": frozenset({"name", "data_directory", "admin_socket", "users_file", "cluster_secret_file"}),
    "metrics": frozenset({"local_bind_address", "port"}),
}
# Where a user writes what the role sets and users may choose.
WRITTEN_AS = {
    ("metrics", "local_bind_address"): "mq_metrics_local_bind_address",
    ("metrics", "port"): "mq_metrics_port",
}


def _declared(default: Any, sentence: str, **bounds: Any) -> Any:
    return Field(default, description=sentence, **bounds)


class Variables(BaseModel):
    """What all variable models share. Inventories may write numbers and truth as text, so conversion is on."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Instance(Variables):
    """One broker process of a host."""

    name: str = _declared(..., "Name of the instance on its host.", pattern=patterns.LABEL)
    port_offset: int = _declared(0, "Number that is added to every port of the instance.", ge=0, le=60_000)
    node_name: str = _declared(
        "",
        "Name of the node in the cluster; the host's name if empty, followed by the instance's where that is not "
        "`default`.",
        pattern=patterns.OPTIONAL_NODE_NAME,
    )


class InventoryUser(Variables):
    """One row of `mq_users`: a user of the cluster, and what it may do."""

    name: str = _declared(..., "Name of the user.", min_length=1)
    password: str = _declared(..., "Password; keep it in a vault.", min_length=1, repr=False)
    roles: list[str] = _declared(["client"], "Roles of the user.", min_length=1)


class Opening(Variables):
    """A port of a host that packet filter rules let in."""

    port: int = _declared(..., "Port of the host.", ge=1, le=65_535)
    protocol: Literal["tcp", "udp"] = _declared("tcp", "Protocol.")
    sources: list[IpNetwork] = _declared([], "Addresses and networks that it is open to, of one family; all if empty.")


def default_instances() -> list[Instance]:
    """One instance with the standard ports."""
    return [Instance(name="default")]


def default_listeners(tls: str = "managed") -> list[dict[str, Any]]:
    """One listener for clients and one for the other nodes."""
    port = CLIENT_PORT if tls == "off" else CLIENT_TLS_PORT
    return [
        {"name": "clients", "kind": "client", "port": port},
        {"name": "cluster", "kind": "cluster", "port": CLUSTER_PORT},
    ]


def is_true(value: object) -> bool:
    """As Ansible reads it: inventories may write truth as text."""
    return value is True or str(value).lower() in {"true", "yes", "on", "y", "t", "1"}


def tls_of(variables: Mapping[str, Any]) -> str:
    """managed, provided or off. Whoever allows plaintext and says nothing of TLS has said that there is none.

    YAML reads a bare `off` as false, and playbooks do the same.
    """
    said = variables.get("mq_tls")
    if said is None:
        return "off" if is_true(variables.get("mq_allow_plaintext", False)) else "managed"
    return "off" if said is False or str(said).lower() in {"false", "no"} else str(said)


def default_address_settings() -> list[dict[str, Any]]:
    """Rejected and expired messages are kept, under the names that Artemis ships with."""
    return [{"match": "#", "dead_letter_address": "DLQ", "expiry_address": "ExpiryQueue"}]


class HostVariables(Variables):
    """All `mq_*` variables of one host."""

    mq_cluster_name: str = _declared(
        ..., "Name of the cluster; the group that sets it is the cluster.", pattern=patterns.LABEL
    )
    mq_cluster_secret: str = _declared(
        ...,
        "Password of the nodes among each other, the same on all hosts of a cluster; keep it in a vault.",
        min_length=patterns.SECRET_CHARACTERS_MIN,
        repr=False,
    )
    mq_users: list[InventoryUser] = _declared(
        [],
        "Users that may log in. Others that a host has are removed; where this is not set at all, they stay.",
        max_length=10_000,
    )
    mq_instances: list[Instance] = Field(
        default_factory=default_instances, description="Broker processes of the host.", min_length=1, max_length=256
    )
    mq_cluster_interface: str | None = _declared(
        None, "Network card whose address the listeners are bound to.", pattern=patterns.NETWORK_CARD
    )
    mq_local_bind_address: IpAddress | None = _declared(None, "IP address of the host that the listeners are bound to.")
    mq_allow_plaintext: bool = _declared(False, "Allow listeners beyond loopback although nothing is encrypted.")
    mq_tls: Literal["managed", "provided", "off"] = _declared(
        "managed",
        "Where certificates come from: `managed` are those that `mqctl tls` makes, `provided` your own, `off` means no "
        "TLS, which is also the default where mq_allow_plaintext is true.",
    )
    mq_tls_directory: str | None = _declared(
        None,
        "Folder of managed certificates on the control node; tls/CLUSTER beside the inventory where it is not set.",
    )
    mq_tls_names: list[str] = _declared(
        [], "Further names and IP addresses that managed certificates of a host are good for.", max_length=100
    )
    mq_tls_certificate_file: str | None = _declared(
        None, "Provided certificate of a host on the control node (PEM, with the CA certificates in between)."
    )
    mq_tls_key_file: str | None = _declared(None, "Private key of the provided certificate on the control node (PEM).")
    mq_tls_ca_file: str | None = _declared(
        None,
        "Provided CA certificates on the control node (PEM) that certificates of the other nodes are checked against.",
    )
    mq_listeners: list[dict[str, Any]] = Field(
        default_factory=default_listeners,
        description="Listeners of every instance, options as in [[listeners]]; without TLS clients have port 5672.",
        max_length=64,
    )
    mq_address_settings: list[dict[str, Any]] = Field(
        default_factory=default_address_settings,
        description="Settings of addresses in every broker, options as in [[address-settings]].",
        max_length=10_000,
    )
    mq_security_settings: list[dict[str, Any]] = _declared(
        [],
        "Permissions of roles at addresses in every broker, options as in [[security-settings]].",
        max_length=10_000,
    )
    mq_addresses: list[dict[str, Any]] = _declared(
        [], "Addresses of every broker and their queues, options as in [[addresses]].", max_length=10_000
    )
    mq_diverts: list[dict[str, Any]] = _declared(
        [], "Diverts in every broker, options as in [[diverts]].", max_length=10_000
    )
    mq_connectors: list[dict[str, Any]] = _declared(
        [],
        "How other nodes reach the brokers of a host, options as in [[connectors]]; port_offset is added to each port.",
        max_length=64,
    )
    mq_broadcast_groups: list[dict[str, Any]] = _declared(
        [], "Where every broker announces itself, options as in [[broadcast-groups]].", max_length=16
    )
    mq_discovery_groups: list[dict[str, Any]] = _declared(
        [], "Where every broker listens for others, options as in [[discovery-groups]].", max_length=16
    )
    mq_cluster_connections: list[dict[str, Any]] = _declared(
        [],
        "Links of every broker to the other nodes of the cluster, options as in [[cluster-connections]].",
        max_length=16,
    )
    mq_grouping_handler: dict[str, Any] = _declared(
        {}, "How groups are kept together in the cluster, options as in [grouping-handler]; one host has type LOCAL."
    )
    mq_connection_routers: list[dict[str, Any]] = _declared(
        [], "Where clients are sent to by routers that listeners name, options as in [[connection-routers]].",
        max_length=64,
    )  # fmt: skip
    mq_broker_options: dict[str, dict[str, Any]] = _declared(
        {}, "Options of broker.toml by table: {limits: {link_credit: 500}}."
    )
    mq_metrics_port: int = _declared(
        METRICS_PORT,
        "Port of metrics and health over HTTP, before the instance's port_offset is added; 0 serves neither.",
        ge=0,
        le=65_535,
    )
    mq_metrics_local_bind_address: IpAddress = _declared(
        LOOPBACK, "IP address of the host that metrics and health are served on."
    )
    mq_firewall: bool = _declared(
        False,
        "Keep rules of nftables (table `inet mq`) that let in what the brokers need, ssh from where Ansible comes "
        "from, and nothing else.",
    )
    mq_firewall_open: list[Opening] = _declared([], "What else these rules let in.", max_length=1000)
    mq_firewall_confirm_s: int = _declared(
        60,
        "Seconds after which a host takes new rules back, unless Ansible has reached it over a new connection.",
        ge=10,
        le=3600,
    )
    mq_rack: str = _declared(
        "",
        "Such as a rack or a room: while brokers are restarted, none misses more than one of its hosts.",
        max_length=64,
    )
    mq_uid: int | None = _declared(None, "User id of the user mq, where it must be a certain one.", ge=1, le=65_533)
    mq_os_unsupported: bool = _declared(False, "Go on although the operating system of a host is not a tested one.")
    mq_bundle: str | None = _declared(None, "Directory of the bundle on the control node (`mqctl bundle build`).")

    @model_validator(mode="before")
    @classmethod
    def _by_tls(cls, data: Any) -> Any:
        """What is not said and depends on whether there is TLS."""
        if not isinstance(data, Mapping):
            return data
        tls = tls_of(data)
        return {"mq_listeners": default_listeners(tls), **data, "mq_tls": tls}
