"""What an inventory may say and hardly means: told by every command that reads it for a plan, and held up by none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mqbroker.base.errors import ConfigFault
from mqbroker.config.declarations import catalogue
from mqbroker.config.file.faults import merged
from mqbroker.config.inventory.broker_findings import broker_doubts
from mqbroker.config.inventory.inventory import OPAQUE, own_variables
from mqbroker.config.users import DEFAULT_ROLES


def doubts_of(hosts: Mapping[str, Mapping[str, Any]]) -> list[ConfigFault]:
    """Of hosts in which nothing is wrong: name -> variables. One that many hosts share is told once, with its hosts."""
    doubted = [
        (host, doubt)
        for host, variables in hosts.items()
        for own in [own_variables(variables)]
        for doubt in (*broker_doubts(own, OPAQUE), *_roles_of_nobody(own))
    ]
    return merged(doubted)


def _roles_of_nobody(variables: Mapping[str, Any]) -> Iterator[ConfigFault]:
    """Permissions for roles that no user has: most likely one of both names is mistyped."""
    users = variables.get("mq_users")
    if not isinstance(users, list):
        return  # who the users are is said elsewhere
    roles = [list(user.get("roles", DEFAULT_ROLES)) for user in users if isinstance(user, dict)]
    listeners = variables.get("mq_listeners", [])
    roles += [[row.get("anonymous_role")] for row in listeners if isinstance(row, dict)]
    known = {role for some in roles for role in some}
    if OPAQUE in known or OPAQUE in users:
        return
    permissions = catalogue.tables()["security_settings"].model_fields
    for number, row in enumerate(variables.get("mq_security_settings", [])):
        granted = {role: name for name in permissions if isinstance(row.get(name), list) for role in row[name]}
        for role, name in sorted(granted.items()):
            if role not in known and role != OPAQUE:
                why = f"names the role {role}, which no user in mq_users has; correct one of them, or add the user"
                yield ConfigFault(f"mq_security_settings.{number}.{name}", why)
