"""What a change of `broker.toml` needs from a running broker: nothing, a reload or a restart, and which options say so.

Listeners are compared by name, so their order in the file means nothing.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

from mqbroker.config import catalogue
from mqbroker.config.options import toml_name
from mqbroker.config.slices import BrokerOptions

# Reloadable from one value to another, but not from or to nothing.
SWITCHES = frozenset({"listeners.tls-certificate-file"})


class Verdict(enum.Enum):
    """What makes the new file hold, weakest first."""

    NONE = "none"
    RELOAD = "reload"
    RESTART = "restart"


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """One option that differs. `old` or `new` is None where the whole table is missing on that side."""

    path: str
    old: Any
    new: Any
    needs: Verdict

    @property
    def why(self) -> str:
        """One sentence for a plan."""
        if self.needs is Verdict.RELOAD:
            return "a running broker takes it on reload"
        return "it is read at start only"


def changes(old: BrokerOptions, new: BrokerOptions) -> list[Change]:
    """Every option that differs, in the order of declaration."""
    reloadable = {entry.path for entry in catalogue.entries() if entry.reload}
    found: list[Change] = []
    for table in catalogue.tables():
        if table in catalogue.REPEATED_TABLES:
            found += _repeated(table, getattr(old, table), getattr(new, table), reloadable)
        else:
            before, after = dataclasses.asdict(getattr(old, table)), dataclasses.asdict(getattr(new, table))
            found += _fields(table, table, (before, after), reloadable)
    return found


def verdict(found: list[Change]) -> Verdict:
    """The strongest need among the changes."""
    if any(change.needs is Verdict.RESTART for change in found):
        return Verdict.RESTART
    return Verdict.RELOAD if found else Verdict.NONE


def _fields(place: str, table: str, pair: tuple[dict[str, Any], dict[str, Any]], reloadable: set[str]) -> list[Change]:
    before, after = pair
    found = []
    for name, old in before.items():
        if old == after[name]:
            continue
        path = f"{table}.{toml_name(name)}"
        # TLS itself does not come or go on reload: the address that the listener is bound to was chosen with it.
        is_switch = path in SWITCHES and not (old and after[name])
        needs = Verdict.RELOAD if path in reloadable and not is_switch else Verdict.RESTART
        found.append(Change(f"{place}.{toml_name(name)}", old, after[name], needs))
    return found


def _repeated(table: str, old: tuple[Any, ...], new: tuple[Any, ...], reloadable: set[str]) -> list[Change]:
    before = {item.name: item for item in old}
    after = {item.name: item for item in new}
    found = []
    for name, item in before.items():
        place = f"{table}.{name}"
        if name in after:
            pair = dataclasses.asdict(item), dataclasses.asdict(after[name])
            found += _fields(place, table, pair, reloadable)
        else:
            found.append(Change(place, name, None, Verdict.RESTART))
    added = [Change(f"{table}.{name}", None, name, Verdict.RESTART) for name in after if name not in before]
    return found + added
