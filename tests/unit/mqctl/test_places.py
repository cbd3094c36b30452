"""Files, folders, accounts and packet filters: every way in which one may differ is a line, and strangers are named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mqbroker.config.inventory.inventory import host_variables
from mqctl.plan.leftovers import left_overs
from mqctl.plan.places import FILTER_PLACE, FILTER_UNIT, Given, HostPlace, Rules, differences, places_of, strangers
from mqctl.plan.plan import Account, PacketFilter, Seen, WantedHost, diff_host
from mqctl.remote import observe as program

FILE = HostPlace("file", "root", "mq", "0640", "aaaaaaaa-1")
WANTED = {"/etc/mq": HostPlace("folder"), "/etc/mq/motto": FILE}


@pytest.mark.parametrize(
    ("change", "before", "after"),
    [
        ({"owner": "bob"}, "owner bob", "owner root"),
        ({"group": "1000"}, "group 1000", "group mq"),
        ({"mode": "0666"}, "mode 0666", "mode 0640"),
        ({"content": "bbbbbbbb-1"}, "content bbbbbbbb", "content aaaaaaaa"),
        ({"mode": "4640", "owner": "mq"}, "owner mq mode 4640", "owner root mode 0640"),
    ],
)
def test_owner_group_mode_and_content_are_compared(change: dict[str, Any], before: str, after: str) -> None:
    (found,) = differences(WANTED, WANTED | {"/etc/mq/motto": replace(FILE, **change)})
    assert (found.path, found.action, found.before, found.after) == ("/etc/mq/motto", "change", before, after)


def test_what_is_missing_or_of_another_kind() -> None:
    assert list(differences(WANTED, WANTED)) == []
    assert [(one.path, one.action) for one in differences(WANTED, {})] == [("/etc/mq", "create")]
    assert [(one.path, one.action) for one in differences(WANTED, {"/etc/mq": HostPlace("folder")})] == [
        ("/etc/mq/motto", "create")
    ]
    (found,) = differences(WANTED, WANTED | {"/etc/mq/motto": HostPlace("link", content="/etc/passwd")})
    assert (found.action, found.before) == ("move away", "link")


def test_what_is_below_a_missing_folder_is_not_told_once_more_and_what_is_beside_it_is() -> None:
    folder = HostPlace("folder")
    wanted = {"/etc/mq/a": folder, "/etc/mq/a/b": folder, "/etc/mq/a/b/c": FILE, "/etc/mq/ab": FILE}
    assert [one.path for one in differences(wanted, {})] == ["/etc/mq/a", "/etc/mq/ab"]
    # A line of another kind tells of the folder, and so of what would be in it.
    told = wanted | {"/etc/mq/a": replace(folder, is_told=True)}
    assert [one.path for one in differences(told, {})] == ["/etc/mq/ab"]
    assert [one.path for one in differences(told, {"/etc/mq/a": folder})] == ["/etc/mq/a/b", "/etc/mq/ab"]


GROUP = {"name": "lan", "group_address": "231.7.7.7", "group_port": 9876}
CONNECTOR = {"mq_connectors": [{"name": "cluster", "host": "192.0.2.11", "port": 5673}]}


@pytest.mark.parametrize(
    ("own", "is_wanted"),
    [
        ({}, False),
        (CONNECTOR, False),
        (CONNECTOR | {"mq_broadcast_groups": [{**GROUP, "connector_ref": "cluster"}]}, True),
        ({"mq_discovery_groups": [GROUP]}, True),
        (CONNECTOR | {"mq_cluster_connections": [
            {"name": "all", "connector_ref": "cluster", "static_connectors": ["cluster"]}]}, True),
    ],
)  # fmt: skip
def test_a_secret_is_wanted_where_a_node_has_to_prove_who_it_is(own: dict[str, Any], is_wanted: bool) -> None:
    variables = host_variables({"mq_cluster_name": "main", "mq_cluster_secret": "0123456789abcdef", **own})
    assert ("/var/lib/mq/default/cluster-secret" in places_of(variables, Given())) is is_wanted


def test_what_a_rollout_sets_aside_is_told_as_something_else() -> None:
    wanted = {"/u": replace(FILE, is_told=True, is_replaced=True)}
    assert list(differences(wanted, {"/u": HostPlace("folder")})) == []
    (found,) = differences(wanted, {"/u": HostPlace("link", content="/etc/passwd")})
    assert found.action == "move away"


def test_a_secret_is_compared_and_not_shown() -> None:
    secret = replace(FILE, is_secret=True)
    (found,) = differences({"/s": secret}, {"/s": replace(secret, content="bbbbbbbb-1")})
    assert (found.before, found.after) == ("content ********", "content ********")


def test_what_nobody_put_there_is_named_and_messages_are_not() -> None:
    seen = WANTED | {
        "/etc/mq/notes": FILE, "/etc/mq/other": HostPlace("folder"), "/etc/mq/other/x": FILE,
        "/var/lib/mq/default/y": FILE,
    }  # fmt: skip
    assert strangers(WANTED | {"/var/lib/mq/default": HostPlace("folder")}, seen) == ["/etc/mq/notes"]
    drop_ins = {"/etc/systemd/system/mqbroker@a.service.d": HostPlace("folder")}
    edited = drop_ins | {"/etc/systemd/system/mqbroker@a.service.d/override.conf": FILE}
    assert strangers(WANTED | drop_ins, WANTED | edited) == []


HOST = WantedHost("1", {}, places={}, releases_kept=2)
SEEN = Seen("1", Account(990), releases={"1": True})


@pytest.mark.parametrize(
    ("seen", "what", "action"),
    [
        (replace(SEEN, releases={}), "files of the release", "install"),
        (replace(SEEN, releases={"1": False}), "files of the release", "install"),
        (replace(SEEN, releases={"1": True, "0": True, "00": False}), "release 00", "remove"),
        (replace(SEEN, account=Account(990, group="users")), "system user mq", "change"),
        (replace(SEEN, account=Account(990, home="/")), "system user mq", "change"),
        (replace(SEEN, account=Account(990, shell="/bin/sh")), "system user mq", "change"),
        (replace(SEEN, account=Account(990, comment="")), "system user mq", "change"),
        (replace(SEEN, places={FILTER_PLACE: HostPlace("folder")}), "packet filter", "remove"),
        (replace(SEEN, places={FILTER_UNIT: HostPlace("file")}), "packet filter", "remove"),
    ],
)
def test_the_host_itself(seen: Seen, what: str, action: str) -> None:
    assert [(one.what, one.action) for one in diff_host("mq1", HOST, seen)] == [(what, action)]
    assert diff_host("mq1", HOST, SEEN) == []


@pytest.mark.parametrize(("kept", "removed"), [(1, ["2", "3"]), (2, ["2", "3"]), (3, ["3"]), (4, []), (9, [])])
def test_the_release_before_is_kept_whatever_is_asked_for(kept: int, removed: list[str]) -> None:
    """To go back to; the role refuses to keep fewer than two."""
    seen = replace(SEEN, releases={"1": True, "02": True, "2": True, "3": True})
    changes = diff_host("mq1", replace(HOST, releases_kept=kept), seen)
    assert [(one.what, one.action) for one in changes] == [(f"release {one}", "remove") for one in removed]


FILTER = PacketFilter("table", "table", "active", "enabled")


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"loaded": None}, "packet filter in force"),
        ({"loaded": "another table"}, "packet filter in force"),
        ({"enabled": "masked"}, "packet filter at boot"),
        ({"active": "failed"}, "unit of the packet filter"),
    ],
)
def test_rules_in_force_are_compared_with_what_their_file_comes_to(change: dict[str, Any], what: str) -> None:
    wanted = replace(HOST, has_filter=True)
    assert diff_host("mq1", wanted, replace(SEEN, filter=FILTER)) == []
    changed = diff_host("mq1", wanted, replace(SEEN, filter=replace(FILTER, **change)))
    assert [one.what for one in changed] == [what]


def test_rules_without_their_files_are_left_over() -> None:
    (left,) = left_overs("mq1", HOST, replace(SEEN, filter=FILTER))
    assert left.remedy == "sudo nft delete table inet mq"
    assert left_overs("mq1", replace(HOST, has_filter=True), replace(SEEN, filter=FILTER)) == []


def test_files_of_the_filter_are_places() -> None:
    variables = host_variables({"mq_cluster_name": "main", "mq_cluster_secret": "0123456789abcdef"})
    plain, filtered = places_of(variables, Given()), places_of(variables, Given(rules=Rules("rules", "unit")))
    assert set(filtered) - set(plain) == {
        FILTER_PLACE, f"{FILTER_PLACE}/candidate.nft", f"{FILTER_PLACE}/ruleset.nft",
        "/etc/systemd/system/mq-firewall.service",
    }  # fmt: skip


def test_a_host_says_what_lies_there(tmp_path: Path) -> None:
    folder = tmp_path / "etc/mq/default"
    folder.mkdir(parents=True)
    (folder / "broker.toml").write_text("x")
    (folder / "broker.toml").chmod(0o4640)
    (folder / "away").symlink_to("/etc/passwd")
    found = {path: HostPlace(*one) for path, one in program.places(str(tmp_path)).items()}  # type: ignore[arg-type]
    assert {path: (one.kind, one.mode) for path, one in found.items() if one.kind != "link"} == {
        "/etc/mq": ("folder", "0755"), "/etc/mq/default": ("folder", "0755"),
        "/etc/mq/default/broker.toml": ("file", "4640"),
    }  # fmt: skip
    assert found["/etc/mq/default/away"].content == "/etc/passwd"
    for name, files in (("old", program.RELEASE_FILES), ("new", ("complete",))):
        for file in files:
            (tmp_path / "opt/mq/releases" / name / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "opt/mq/releases" / name / file).write_text('{"release": "old"}')
    assert sorted(program.releases(str(tmp_path))) == [["new", False], ["old", True]]
