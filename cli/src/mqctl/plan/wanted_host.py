"""What the inventory wants of a host, as a plan compares it: made from the same models that check an inventory."""

from __future__ import annotations

from pathlib import Path

from mqbroker.base.errors import ConfigFault
from mqbroker.config.declarations.variables import CLUSTER_USER, HostVariables
from mqbroker.config.file import completeness
from mqbroker.config.inventory.release_variables import releases_kept
from mqbroker.config.inventory.tables import render_toml
from mqbroker.config.users import user_name

from mqctl.bundle.manifest import Manifest
from mqctl.errors import CommandError
from mqctl.inventory import Host, variables_of
from mqctl.plan.places import Given, places_of
from mqctl.plan.plan import PlannedUser, Seen, WantedHost, WantedInstance

NOTHING = Given()


def wanted_of(
    host: Host,
    manifest: Manifest,
    unit_file: str | None,
    seen: Seen,
    given: Given = NOTHING,
) -> WantedHost:
    """The wanted state. `seen` is needed for one thing: the address of the network card that the inventory names."""
    variables = variables_of(host)
    try:
        kept = releases_kept(host.variables)
    except ConfigFault as fault:
        raise CommandError(f"{host.name}: {fault}", "mqctl inventory check") from None
    address = address_of(host, variables, seen)
    users, has_all_users = users_of(variables), "mq_users" in variables.model_fields_set
    instances = {
        one.name: WantedInstance(
            f"{render_toml(variables, one, host.name, address)}\n{completeness.END}\n",
            users,
            given.certificates.get(one.name, {}),
            has_all_users,
        )
        for one in variables.mq_instances
    }
    places, has_filter = places_of(variables, given), variables.mq_firewall
    return WantedHost(manifest.release, instances, variables.mq_uid, unit_file, places, has_filter, kept)


def users_of(variables: HostVariables) -> dict[str, PlannedUser]:
    """Users of the inventory by their names as a broker keeps them, and the one that the nodes log in with."""
    users = {user_name(one.name): PlannedUser(tuple(one.roles), one.password) for one in variables.mq_users}
    return users | {CLUSTER_USER: PlannedUser(("cluster",), variables.mq_cluster_secret)}


def address_of(host: Host, variables: HostVariables, seen: Seen) -> str | None:
    """That of the network card that the inventory names; None where it names none."""
    card = variables.mq_cluster_interface
    if card is None:
        return None
    addresses = seen.addresses.get(card)
    if addresses is None:
        cards = ", ".join(sorted(seen.addresses)) or "none"
        raise CommandError(f"{host.name}: mq_cluster_interface {card} is no network card there; it has {cards}",
                           "mqctl preflight")  # fmt: skip
    if not addresses:
        raise CommandError(f"{host.name}: the network card {card} has no IPv4 address", "mqctl preflight")
    return addresses[0]


def unit_template(collection: Path) -> str | None:
    """The unit file of the role, where it has nothing to fill in; else a plan does not compare it."""
    for path in sorted((collection / "roles" / "broker").glob("*/mqbroker@.service*")):
        text = path.read_text()
        if "{{" not in text and "{%" not in text:
            return text
    return None
