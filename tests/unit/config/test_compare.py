"""What a change of options needs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from mqbroker.config.compare import OptionsVerdict, changes, due, refusals, taken, verdict
from mqbroker.config.declarations.options import defaults
from mqbroker.config.file.load import parse
from mqbroker.config.slices import AddressOptions, BrokerOptions

from tests.support.bytecodes import Bytecodes

CLIENTS = '[[listeners]]\nname = "clients"\nport = 5672\n'
TLS = 'tls-certificate-file = "/c"\ntls-key-file = "/k"\n'
TLS_NAMES = ("tls-certificate-file", "tls-key-file")
ORDERS = '[[address-settings]]\nmatch = "orders"\nredelivery-delay = {}\n'
FULL = ORDERS.format(1) + "max-size-bytes = 7\n"
SECURITY = '[[security-settings]]\nmatch = "orders"\nsend = ["{}"]\n'
DIVERT = '[[diverts]]\nname = "d"\naddress = "orders"\nforwarding-address = "{}"\n'
ENDS = '[[address-settings]]\nmatch = "#"\nconfig-delete-diverts = "{}"\n'
ADDRESS = '[[addresses]]\nname = "orders"\n[[addresses.anycast]]\nname = "orders"\nmax-consumers = {}\n'
CLUSTER = '[[listeners]]\nname = "cluster"\nkind = "cluster"\nport = 5673\n'


def options(text: str) -> BrokerOptions:
    found = parse(text)
    assert isinstance(found, BrokerOptions)
    return found


@pytest.mark.parametrize(
    ("old", "new", "expected", "paths"),
    [
        ("", "", OptionsVerdict.NONE, []),
        ("", "[limits]\nlink-credit = 2000\n", OptionsVerdict.NONE, []),
        (CLIENTS + CLUSTER, CLUSTER + CLIENTS, OptionsVerdict.NONE, []),
        ("", "[node]\nstop-timeout-ms = 400\n", OptionsVerdict.RELOAD, ["node.stop-timeout-ms"]),
        (CLIENTS, CLIENTS + "connections-max = 5\n", OptionsVerdict.RELOAD, ["listeners.clients.connections-max"]),
        ("", "[limits]\nlink-credit = 3\n", OptionsVerdict.RESTART, ["limits.link-credit"]),
        (CLIENTS, CLIENTS + "backlog = 5\n", OptionsVerdict.RESTART, ["listeners.clients.backlog"]),
        (CLIENTS, "", OptionsVerdict.RESTART, ["listeners.clients"]),
        (CLIENTS + TLS, CLIENTS + TLS.replace("/k", "/k2"), OptionsVerdict.RELOAD, ["listeners.clients.tls-key-file"]),
        (
            CLIENTS + TLS,
            CLIENTS + TLS.replace("/c", "/c2"),
            OptionsVerdict.RELOAD,
            ["listeners.clients.tls-certificate-file"],
        ),
        (CLIENTS, CLIENTS + TLS, OptionsVerdict.RESTART, [f"listeners.clients.{name}" for name in TLS_NAMES]),
        (CLIENTS + TLS, CLIENTS, OptionsVerdict.RESTART, [f"listeners.clients.{name}" for name in TLS_NAMES]),
        (CLIENTS, CLIENTS + CLUSTER, OptionsVerdict.RESTART, ["listeners.cluster"]),
        ("", ORDERS.format(1), OptionsVerdict.RELOAD, ["address-settings.orders"]),
        (ORDERS.format(1), "", OptionsVerdict.RELOAD, ["address-settings.orders"]),
        ("", SECURITY.format("a"), OptionsVerdict.RELOAD, ["security-settings.orders"]),
        (SECURITY.format("a"), SECURITY.format("b"), OptionsVerdict.RELOAD, ["security-settings.orders.send"]),
        (SECURITY.format("a"), "", OptionsVerdict.RESTART, ["security-settings.orders"]),
        ("", DIVERT.format("a"), OptionsVerdict.RELOAD, ["diverts.d"]),
        (DIVERT.format("a"), DIVERT.format("b"), OptionsVerdict.RELOAD, ["diverts.d.forwarding-address"]),
        (DIVERT.format("a"), "", OptionsVerdict.RESTART, ["diverts.d"]),
        (DIVERT.format("a") + ENDS.format("FORCE"), ENDS.format("FORCE"), OptionsVerdict.RELOAD, ["diverts.d"]),
        # What holds is said by the new file, and by its most specific match.
        (
            DIVERT.format("a") + ENDS.format("FORCE"),
            ENDS.format("FORCE") + '[[address-settings]]\nmatch = "orders"\nconfig-delete-diverts = "OFF"\n',
            OptionsVerdict.RESTART,
            ["address-settings.orders", "diverts.d"],
        ),
        ("", ADDRESS.format(5), OptionsVerdict.RELOAD, ["addresses.orders"]),
        (ADDRESS.format(5), ADDRESS.format(6), OptionsVerdict.RELOAD, ["addresses.orders.anycast"]),
        (ADDRESS.format(5), "", OptionsVerdict.RELOAD, ["addresses.orders"]),
        ("", FULL, OptionsVerdict.RESTART, ["address-settings.orders", "address-settings.orders.max-size-bytes"]),
        (FULL, "", OptionsVerdict.RESTART, ["address-settings.orders", "address-settings.orders.max-size-bytes"]),
        (
            "",
            '[node]\nlog-format = "json"\n[journal]\njournal-sync = false\n',
            OptionsVerdict.RESTART,
            ["node.log-format", "journal.journal-sync"],
        ),
    ],
)
def test_verdict_and_options(old: str, new: str, expected: OptionsVerdict, paths: list[str]) -> None:
    found = changes(options(old), options(new))
    assert (verdict(found), [change.path for change in found]) == (expected, paths)
    assert all(change.why for change in found)


@pytest.mark.parametrize(
    ("started", "before", "after", "paths"),
    [
        ("", "", "", []),
        ("", "", "[limits]\nlink-credit = 3\n", []),
        ("", "", '[node]\nlog-format = "json"\n', ["node.log-format"]),
        ("", '[node]\nlog-format = "json"\n', "", ["node.log-format"]),
        ("", '[node]\nlog-format = "json"\n', '[node]\nlog-format = "json"\n', []),
        # Settings that came after the start are in force, and so is what changes in them.
        ("", ORDERS.format(1), ORDERS.format(2), ["address-settings.orders.redelivery-delay"]),
        # A listener that waits for the restart is not; nor is TLS.
        (CLIENTS, CLIENTS + CLUSTER, CLIENTS + CLUSTER + "connections-max = 5\n", []),
        (CLIENTS, CLIENTS + TLS, CLIENTS + TLS.replace("/c", "/c2"), []),
    ],
)
def test_what_a_reload_changed(started: str, before: str, after: str, paths: list[str]) -> None:
    assert [one.path for one in taken(options(started), options(before), options(after))] == paths


CREDIT, JSON = "[limits]\nlink-credit = {}\n", '[node]\nlog-format = "json"\n'


@pytest.mark.parametrize(
    ("started", "before", "after", "expected"),
    [
        ("", "", "", {}),
        ("", "", JSON, {"node.log-format": OptionsVerdict.RELOAD}),
        ("", JSON, JSON, {}),
        ("", JSON, "", {"node.log-format": OptionsVerdict.RELOAD}),
        # What waits for a restart is as the process was started, whatever it was told since.
        ("", CREDIT.format(3), CREDIT.format(3), {"limits.link-credit": OptionsVerdict.RESTART}),
        ("", CREDIT.format(3), CREDIT.format(4), {"limits.link-credit": OptionsVerdict.RESTART}),
        ("", CREDIT.format(3), "", {}),
        (CREDIT.format(3), "", CREDIT.format(3) + JSON, {"node.log-format": OptionsVerdict.RELOAD}),
        # A divert that a reload brought, and a restart alone ends.
        ("", DIVERT.format("a"), "", {"diverts.d": OptionsVerdict.RESTART}),
        ("", SECURITY.format("a"), "", {"security-settings.orders": OptionsVerdict.RESTART}),
    ],
)
def test_what_has_to_be_done_after_reloads(
    started: str, before: str, after: str, expected: dict[str, OptionsVerdict]
) -> None:
    found = due(options(started), options(before), options(after))
    assert {one.path: one.needs for one in found} == expected
    assert len(found) == len(expected)


@pytest.mark.parametrize(
    ("started", "before", "after", "paths"),
    [
        ("", "", "", []),
        # Permissions are those of the last reload, listeners those of the start.
        ("", SECURITY.format("a"), "", ["security-settings"]),
        (SECURITY.format("a"), "", "", []),
        (CLIENTS, CLIENTS + CLUSTER, CLIENTS, []),
        (CLIENTS + CLUSTER, CLIENTS, CLIENTS, ["listeners.cluster"]),
        ('[node]\nname = "a"\n', "", "", ["node.name", "node.data-directory"]),
        ("", '[node]\nname = "a"\n', "", []),
    ],
)
def test_what_a_running_process_refuses(started: str, before: str, after: str, paths: list[str]) -> None:
    found = refusals(options(started), options(before), options(after))
    assert [one.path for one in found] == paths


def test_rows_of_which_there_are_very_many_are_not_taken_apart() -> None:
    rows = tuple(AddressOptions(f"address.{number}", ("ANYCAST",), (), ()) for number in range(1000))
    with_rows, again = (replace(defaults(), addresses=tuple(map(replace, rows))) for _ in range(2))
    other = replace(again, addresses=(*again.addresses[:-1], replace(rows[-1], routing_types=("MULTICAST",))))
    for old, new, most, paths in (
        (with_rows, again, 100, []),
        (with_rows, other, 100, ["addresses.address.999.routing-types"]),
        (defaults(), with_rows, 250, [f"addresses.address.{number}" for number in range(1000)]),
    ):
        work = Bytecodes()
        assert [one.path for one in work.of(lambda old=old, new=new: changes(old, new))] == paths  # type: ignore[misc]
        nothing = Bytecodes()
        nothing.of(lambda: changes(defaults(), defaults()))
        assert work.count - nothing.count < most * len(rows)
