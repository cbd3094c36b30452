"""What a change of `broker.toml` needs from a running broker: nothing, a reload or a restart, and which options say so.

Listeners are compared by name and address settings by match, so their order in the file means nothing.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator
from typing import Any

from mqbroker.base.errors import ConfigFault
from mqbroker.config import matching
from mqbroker.config.names import REPEATED_TABLES, toml_name
from mqbroker.config.slices import (
    RELOADABLE,
    AddressMatch,
    AddressSettings,
    AddressSettingsOptions,
    BrokerOptions,
    DivertOptions,
)

# Reloadable from one value to another, but not from or to nothing.
SWITCHES = frozenset({"listeners.tls-certificate-file"})
SAME_ROWS = 16  # of a piece, where they are looked at and no others


class OptionsVerdict(enum.Enum):
    """What makes the new file hold, weakest first."""

    NONE = "none"
    RELOAD = "reload"
    RESTART = "restart"


@dataclasses.dataclass(frozen=True, slots=True)
class OptionChange:
    """One option that differs. `old` or `new` is None where the whole table is missing on that side."""

    path: str
    old: Any
    new: Any
    needs: OptionsVerdict

    @property
    def why(self) -> str:
        """What a plan says of the change: one sentence."""
        if self.needs is OptionsVerdict.RELOAD:
            return "a running broker takes it on reload"
        return "it is read at start only"


def changes(old: BrokerOptions, new: BrokerOptions) -> list[OptionChange]:
    """Every option that differs, in the order of declaration."""
    return [one for piece in pieces(old, new) for one in piece]


def pieces(old: BrokerOptions, new: BrokerOptions) -> Iterator[list[OptionChange]]:
    """The same piece by piece: a table, or a row of those of which there may be very many."""
    for table in (field.name for field in dataclasses.fields(BrokerOptions)):
        if getattr(old, table) is getattr(new, table):
            continue
        if table in REPEATED_TABLES:
            rows = _repeated(table, _rows(getattr(old, table)), _rows(getattr(new, table)))
        else:
            before, after = dataclasses.asdict(getattr(old, table)), dataclasses.asdict(getattr(new, table))
            rows = iter((_fields(table, table, (before, after)),))
        if table == "security_settings":
            rows = (_kept_permissions(changes, new) for changes in rows)
        elif table == "diverts":
            rows = (_kept_diverts(changes, old, new) for changes in rows)
        yield from rows


def restarts(old: BrokerOptions, new: BrokerOptions) -> list[OptionChange]:
    """Those that need one. None is of an address that the file declares, of which there may be ten thousand."""
    like = dataclasses.replace(old, addresses=new.addresses)
    return [one for one in changes(like, new) if one.needs is OptionsVerdict.RESTART]


def _kept_permissions(changes: list[OptionChange], new: BrokerOptions) -> list[OptionChange]:
    """The last security settings do not go by a reload (`refusals`)."""
    if new.security_settings:
        return changes
    return [
        dataclasses.replace(one, needs=OptionsVerdict.RESTART) if one.path.startswith("security-settings.") else one
        for one in changes
    ]


def _kept_diverts(changes: list[OptionChange], old: BrokerOptions, new: BrokerOptions) -> list[OptionChange]:
    """Diverts that are gone from the file and stay all the same: a restart alone ends them."""
    kept = {f"diverts.{one.name}" for one in old.diverts if not ends(one, new)}
    return [
        dataclasses.replace(one, needs=OptionsVerdict.RESTART) if one.new is None and one.path in kept else one
        for one in changes
    ]  # fmt: skip


def refusals(started: BrokerOptions, before: BrokerOptions, after: BrokerOptions) -> list[ConfigFault]:
    """Why a process that began with `started` and has `before` does not take `after` at all.

    Each is what a file looks like of which a part is missing, or that belongs to another node.
    """
    remedy = "restart the broker if that is meant"
    faults = []
    for option in ("name", "data_directory"):
        runs, says = getattr(started.node, option), getattr(after.node, option)
        if runs != says:
            why = f"is {says!r} and this broker runs with {runs!r}: the file is another node's or cut off; {remedy}"
            faults.append(ConfigFault(f"node.{toml_name(option)}", why))
    left = {listener.name for listener in after.listeners}
    lost = (listener.name for listener in started.listeners if listener.name not in left)
    faults += [ConfigFault(f"listeners.{name}", f"is in use and missing in the file; {remedy}") for name in lost]
    if before.security_settings and not after.security_settings:
        why = f"are all missing in the file: without any, everybody may send and receive everywhere; {remedy}"
        faults.append(ConfigFault("security-settings", why))
    return faults


def ends(divert: DivertOptions, new: BrokerOptions) -> bool:
    """Whether a reload of `new`, which does not name it, ends a divert."""
    return bool(matching.setting_at(new.address_settings, divert.address, "config_delete_diverts") == "FORCE")


def taken(started: BrokerOptions, before: BrokerOptions, after: BrokerOptions) -> list[OptionChange]:
    """What the reload of `after` changes in a process that has read `before` last and began with `started`.

    What waits for a restart is not among it: it has not come into force and cannot change.
    """
    return [one for piece in taken_pieces(started, before, after) for one in piece]


def taken_pieces(started: BrokerOptions, before: BrokerOptions, after: BrokerOptions) -> Iterator[list[OptionChange]]:
    """What `taken` gives, piece by piece, as `pieces` cuts it."""
    names = {listener.name for listener in started.listeners}

    def of_process(options: BrokerOptions) -> BrokerOptions:
        kept = tuple(listener for listener in options.listeners if listener.name in names)
        return dataclasses.replace(options, listeners=kept)

    first, last = of_process(before), of_process(after)
    waiting = {one.path for other in (first, last) for one in restarts(started, other)}
    for piece in pieces(first, last):
        yield [one for one in piece if one.needs is OptionsVerdict.RELOAD and one.path not in waiting]


def due(started: BrokerOptions, before: BrokerOptions, after: BrokerOptions) -> list[OptionChange]:
    """What has to be done for `after` to hold in a process that began with `started` and has taken `before` last.

    What waits for a restart is as the process was started, whatever it has taken since.
    """
    fixed = [one for one in changes(started, after) if one.needs is OptionsVerdict.RESTART]
    waiting = {one.path for one in (*fixed, *changes(started, before)) if one.needs is OptionsVerdict.RESTART}
    return fixed + [one for one in changes(before, after) if one.path not in waiting]


def in_force(started: AddressSettingsOptions, new: AddressSettingsOptions) -> AddressSettingsOptions:
    """The settings of addresses after a reload of `new`: what waits for a restart is as the process was started."""
    names = (field.name for field in dataclasses.fields(AddressSettings))
    fixed = {name for name in names if f"address-settings.{toml_name(name)}" not in RELOADABLE}
    values = {
        one.match: {name: value for name, value in one.values.items() if name not in fixed} for one in new.matches
    }
    for one in started.matches:
        kept = {name: value for name, value in one.values.items() if name in fixed}
        if kept:
            values.setdefault(one.match, {}).update(kept)
    return AddressSettingsOptions(new.built_in, tuple(AddressMatch(match, said) for match, said in values.items()))


def verdict(changes: list[OptionChange]) -> OptionsVerdict:
    """The strongest need among the changes."""
    if any(change.needs is OptionsVerdict.RESTART for change in changes):
        return OptionsVerdict.RESTART
    return OptionsVerdict.RELOAD if changes else OptionsVerdict.NONE


def _rows(held: Any) -> tuple[Any, ...]:
    return held.matches if isinstance(held, AddressSettingsOptions) else held


def _values(row: Any) -> dict[str, Any]:
    return dict(row.values) if isinstance(row, AddressMatch) else dataclasses.asdict(row)


def _fields(place: str, table: str, pair: tuple[dict[str, Any], dict[str, Any]]) -> list[OptionChange]:
    before, after = pair
    changes = []
    for name in {**before, **after}:
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        path = f"{toml_name(table)}.{toml_name(name)}"
        # TLS itself does not come or go on reload: the address that the listener is bound to was chosen with it.
        is_switch = path in SWITCHES and not (old and new)
        needs = OptionsVerdict.RELOAD if path in RELOADABLE and not is_switch else OptionsVerdict.RESTART
        changes.append(OptionChange(f"{place}.{toml_name(name)}", old, new, needs))
    return changes


def _repeated(table: str, old: tuple[Any, ...], new: tuple[Any, ...]) -> Iterator[list[OptionChange]]:
    """Row by row."""
    key = REPEATED_TABLES[table]
    head = toml_name(table)
    before = {getattr(item, key): item for item in old}
    after = {getattr(item, key): item for item in new}
    whole = OptionsVerdict.RELOAD if f"{head}.{key}" in RELOADABLE else OptionsVerdict.RESTART
    same_count = 0
    for name, item in before.items():
        if name not in after:
            place = f"{head}.{name}"
            rest = _not_reloadable(place, head, item) if whole is OptionsVerdict.RELOAD else []
            yield [OptionChange(place, name, None, whole), *rest]
        elif item != after[name]:  # there may be ten thousand, of which none is another one
            yield _fields(f"{head}.{name}", table, (_values(item), _values(after[name])))
        else:
            same_count += 1
            if same_count % SAME_ROWS == 0:
                yield []
    for name, item in after.items():
        if name not in before:
            place = f"{head}.{name}"
            rest = _not_reloadable(place, head, item) if whole is OptionsVerdict.RELOAD else []
            added = [dataclasses.replace(one, old=None, new=one.old) for one in rest] if rest else rest
            yield [OptionChange(place, None, name, whole), *added]


def _not_reloadable(place: str, head: str, row: Any) -> list[OptionChange]:
    """What goes with a table that a reload takes away, and needs a restart all the same."""
    said = row.values if isinstance(row, AddressMatch) else row.__slots__
    names = [name for name in said if f"{head}.{toml_name(name)}" not in RELOADABLE]
    values = _values(row) if names else {}
    return [OptionChange(f"{place}.{toml_name(name)}", values[name], None, OptionsVerdict.RESTART) for name in names]
