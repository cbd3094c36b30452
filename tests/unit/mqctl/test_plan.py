"""The plan: what is wanted against what is there, change by change."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mqbroker.base.errors import MqError
from mqbroker.config import users as broker_users
from mqbroker.io.files import identity as broker_identity
from mqctl.bundle.manifest import Manifest
from mqctl.inventory import Host
from mqctl.plan.leftovers import left_overs
from mqctl.plan.places import HostPlace, digest
from mqctl.plan.plan import (
    Account,
    Change,
    Loaded,
    PlannedUser,
    Seen,
    SeenInstance,
    WantedHost,
    WantedInstance,
    diff_host,
    plan_hash,
)
from mqctl.plan.wanted_host import wanted_of
from mqctl.remote import observe as program

OPTIONS = """\
[node]
name = "default"
[limits]
link-credit = 500
[[listeners]]
name = "clients"
port = 5672
"""
USERS = {"app": PlannedUser(("client",), "s3cret-canary"), "mq-cluster": PlannedUser(("cluster",), "another-canary")}
VERIFIERS = broker_users.users_to_text(
    {name: broker_users.make_verifier(one.password, b"salt-salt-salt-s", one.roles) for name, one in USERS.items()}
)
WANTED = WantedHost("0.1.0-aaaaaaaa", {"default": WantedInstance(OPTIONS, USERS)}, unit_file="[Unit]\n")
USERS_FILE = "/var/lib/mq/default/users.json"
LOADED = Loaded("0.1.0-aaaaaaaa", OPTIONS, "[Unit]\n", OPTIONS, {USERS_FILE: digest(VERIFIERS)})
INSTANCE = SeenInstance(OPTIONS, VERIFIERS, "3f7b3477-82ab-4e4c-b798-496ae3a82787", "active", "enabled", LOADED)
SEEN = Seen("0.1.0-aaaaaaaa", Account(990), "[Unit]\n", instances={"default": INSTANCE},
            releases={"0.1.0-aaaaaaaa": True})  # fmt: skip


def seen(**instance: object) -> Seen:
    """SEEN with an instance that differs; the process runs what is on disk unless `loaded` is given."""
    if "loaded" not in instance:
        options = instance.get("options", OPTIONS)
        users = instance.get("users", VERIFIERS)
        files = {} if users is None else {USERS_FILE: digest(str(users))}
        instance["loaded"] = replace(LOADED, options=options, started=options, files=files)  # type: ignore[arg-type]
    return replace(SEEN, instances={"default": replace(INSTANCE, **instance)})  # type: ignore[arg-type]


def only(changes: list[Change]) -> Change:
    assert len(changes) == 1, changes
    return changes[0]


def test_nothing_to_do() -> None:
    assert diff_host("mq1", WANTED, SEEN) == []


def test_a_bare_host_gets_everything() -> None:
    changes = diff_host("mq1", WANTED, Seen())
    assert [(one.what, one.action) for one in changes] == [
        ("system user mq", "create"),
        ("release", "create"),
        ("unit mqbroker@.service", "create"),
        ("identity", "create"),
        ("options", "create"),
        ("user app", "create"),
        ("user mq-cluster", "create"),
        ("service at boot", "enable"),
        ("service", "start"),
    ]


def test_another_release_needs_a_restart() -> None:
    change = only(diff_host("mq1", replace(WANTED, release="0.2.0-bbbbbbbb"), SEEN))
    assert (change.what, change.before, change.after, change.needs) == (
        "release", "0.1.0-aaaaaaaa", "0.2.0-bbbbbbbb", "restart",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "what", "before", "after", "needs"),
    [
        ("link-credit = 500", "link-credit = 9", "option limits.link-credit", "9", "500", "restart"),
        ("port = 5672", "port = 5999", "option listeners.clients.port", "5999", "5672", "restart"),
        ('name = "default"', 'name = "default"\nstop-timeout-ms = 500', "option node.stop-timeout-ms", "500", "10000",
         "reload"),
    ],
)  # fmt: skip
def test_options_are_compared_by_value(old: str, new: str, what: str, before: str, after: str, needs: str) -> None:
    change = only(diff_host("mq1", WANTED, seen(options=OPTIONS.replace(old, new))))
    assert (change.what, change.before, change.after, change.needs) == (what, before, after, needs)


def test_what_is_no_option_is_replaced_and_the_heading_is_left_alone() -> None:
    """A role compares texts, so that a plan has to say what it rewrites."""
    assert diff_host("mq1", WANTED, seen(options=f"#\n# hello\n#\n{OPTIONS}\n")) == []
    first, second = OPTIONS.split("[limits]")
    for text in (OPTIONS.replace("[limits]", "# mine\n[limits]"), f"[limits]{second.partition('[[')[0]}{first}[["
                 + second.partition("[[")[2]):  # fmt: skip
        change = only(diff_host("mq1", WANTED, seen(options=text)))
        assert (change.what, change.action, change.needs) == ("text of broker.toml", "replace", "none")


def test_a_file_that_cannot_be_read_is_replaced() -> None:
    change = only(diff_host("mq1", WANTED, seen(options="[limits]\nlink-credits = 1\n")))
    assert (change.what, change.action, change.needs) == ("options", "replace", "restart")
    assert "link-credits" in change.before


def test_verifiers_of_an_older_release_are_completed() -> None:
    old = {name: replace(one, sha512=None) for name, one in broker_users.users_from_text(VERIFIERS).items()}
    changes = diff_host("mq1", WANTED, seen(users=broker_users.users_to_text(old)))
    assert [(one.what, one.action, one.after) for one in changes] == [
        ("verifier of app", "change", "SHA-256 SHA-512"),
        ("verifier of mq-cluster", "change", "SHA-256 SHA-512"),
    ]


def test_a_new_password_is_seen_without_showing_it() -> None:
    wanted = replace(
        WANTED,
        instances={"default": WantedInstance(OPTIONS, USERS | {"app": PlannedUser(("client",), "new-canary-pw")})},
    )
    change = only(diff_host("mq1", wanted, SEEN))
    assert change.what == "password of app"
    assert "canary" not in repr(change) + repr(wanted) + repr(SEEN)


def test_roles_are_compared() -> None:
    wanted = replace(
        WANTED,
        instances={
            "default": WantedInstance(OPTIONS, USERS | {"app": PlannedUser(("client", "ops"), "s3cret-canary")})
        },
    )
    change = only(diff_host("mq1", wanted, SEEN))
    assert (change.what, change.before, change.after) == ("user app", "client", "client ops")


def test_a_user_that_the_inventory_no_longer_has_is_deleted() -> None:
    have = broker_users.users_from_text(VERIFIERS)
    found = seen(users=broker_users.users_to_text(have | {"bob": replace(have["app"], roles=("client", "ops"))}))
    wanted = replace(WANTED, instances={"default": replace(WANTED.instances["default"], has_all_users=True)})
    change = only(diff_host("mq1", wanted, found))
    assert (change.what, change.action, change.before, change.needs) == ("user bob", "delete", "client ops", "reload")
    assert left_overs("mq1", wanted, found) == []
    # Where it does not say who the users are, they stay and are named.
    assert diff_host("mq1", WANTED, found) == []
    (left,) = left_overs("mq1", WANTED, found)
    assert (left.instance, left.what) == ("default", "user bob")
    assert "users remove --instance default -- bob && sudo systemctl reload mqbroker@default.service" in left.remedy


def test_the_inventory_says_who_the_users_are_only_where_it_names_them() -> None:
    base = {"mq_cluster_name": "main", "mq_cluster_secret": "0123456789abcdef"}
    manifest = Manifest("1.0", "1.0-abc", "3.11", "cp311", "linux", "x86_64", "2.36", "0" * 64, ())
    cases: list[tuple[dict[str, Any], bool]] = [({}, False), ({"mq_users": []}, True)]
    for given, is_whole in cases:
        wanted = wanted_of(Host("mq1", "main", base | given, {}), manifest, None, Seen())
        assert wanted.instances["default"].has_all_users is is_whole
    users = [{"name": "\u2168", "password": "s3cret-canary"}]
    wanted = wanted_of(Host("mq1", "main", base | {"mq_users": users}, {}), manifest, None, Seen())
    assert list(wanted.instances["default"].users) == ["IX", "mq-cluster"]


def test_instances_that_the_inventory_no_longer_has_are_left_over() -> None:
    places = ("/etc/mq/b", "/var/lib/mq/b", "/etc/systemd/system/mqbroker@b.service.d",
              "/etc/systemd/system/multi-user.target.wants/mqbroker@b.service")  # fmt: skip
    traces = {"default": ("/etc/mq/default",), "b": places, "c": ("/var/lib/mq/c",), "a b": ("/etc/mq/a b",)}
    found = replace(SEEN, traces=traces, running=("b", "default", "ghost"))
    assert diff_host("mq1", WANTED, found) == []
    assert [(one.instance, one.what, one.remedy) for one in left_overs("mq1", WANTED, found)] == [
        ("", "folder /etc/mq/a b, which is no instance's", "sudo rm -r '/etc/mq/a b'"),
        ("b", "instance b, which runs",
         "sudo systemctl disable --now mqbroker@b.service && sudo rm -r /etc/mq/b "
         "/etc/systemd/system/mqbroker@b.service.d"),
        ("b", "messages and identity of instance b", "sudo rm -r /var/lib/mq/b"),
        ("c", "messages and identity of instance c", "sudo rm -r /var/lib/mq/c"),
        ("ghost", "instance ghost, which runs", "sudo systemctl disable --now mqbroker@ghost.service"),
    ]  # fmt: skip
    found = replace(SEEN, traces={"a b": ("/etc/mq/a b",)}, places={"/etc/mq/a b/broker.toml": HostPlace("file")})
    assert [(one.instance, one.what, one.remedy) for one in left_overs("mq1", WANTED, found)] == [
        ("a b", "instance a b, which does not run",
         "sudo systemctl disable --now 'mqbroker@a b.service' && sudo rm -r '/etc/mq/a b'"),
    ]  # fmt: skip


def test_what_options_name_is_not_left_over() -> None:
    """A certificate of the operator's own, in a folder beside those of instances or in theirs."""
    options = OPTIONS + 'tls-certificate-file = "/etc/mq/tls/server.pem"\ntls-key-file = "/etc/mq/key"\n'
    wanted = replace(WANTED, instances={"default": replace(WANTED.instances["default"], options=options)},
                     places={"/etc/mq": HostPlace("folder")})  # fmt: skip
    places = {"/etc/mq": HostPlace("folder"), "/etc/mq/key": HostPlace("file"), "/etc/mq/notes": HostPlace("file")}
    found = replace(SEEN, traces={"tls": ("/etc/mq/tls",), "other": ("/etc/mq/other",)}, places=places)
    assert [one.what for one in left_overs("mq1", wanted, found)] == [
        "folder /etc/mq/other, which is no instance's", "file /etc/mq/notes",
    ]  # fmt: skip


def test_traces_of_instances_are_found_wherever_they_are(tmp_path: Path) -> None:
    made_by_mkfs = "var/lib/mq/lost+found"  # where the data has a file system of its own
    for place in ("etc/mq/a", "etc/mq/b/tls", "var/lib/mq/c", made_by_mkfs, "etc/systemd/system/mqbroker@d.service.d"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "etc/systemd/system/multi-user.target.wants").mkdir()
    (tmp_path / "etc/systemd/system/multi-user.target.wants/mqbroker@e.service").symlink_to("gone")
    assert program.traces(str(tmp_path)) == {
        "a": ["/etc/mq/a"], "b": ["/etc/mq/b"], "c": ["/var/lib/mq/c"],
        "d": ["/etc/systemd/system/mqbroker@d.service.d"],
        "e": ["/etc/systemd/system/multi-user.target.wants/mqbroker@e.service"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("instance", "what", "action"),
    [
        ({"active": "failed"}, "service", "start"),
        ({"active": "inactive"}, "service", "start"),
        ({"enabled": "disabled"}, "service at boot", "enable"),
        ({"node_id": None}, "identity", "create"),
    ],
)
def test_services_and_identity(instance: dict[str, object], what: str, action: str) -> None:
    change = only(diff_host("mq1", WANTED, seen(**instance)))
    assert (change.what, change.action) == (what, action)


def test_a_release_that_is_not_as_it_was_installed() -> None:
    change = only(diff_host("mq1", WANTED, replace(SEEN, release_faults=("bin/mqbroker has changed", "x", "y"))))
    assert (change.what, change.action, change.before) == (
        "files of the release", "install", "bin/mqbroker has changed, and 2 more",
    )  # fmt: skip
    assert only(diff_host("mq1", WANTED, replace(SEEN, release_faults=("x is gone",)))).before == "x is gone"


def test_an_identity_that_no_rollout_mends(tmp_path: Path) -> None:
    """The same cases, and the same verdict, as in the broker's own program."""
    machine, directory = "0" * 32, tmp_path / "a"

    def said() -> tuple[str | None, str]:
        found = program.identity_of(str(directory), machine)
        is_refused = False
        try:
            broker_identity.init(directory, machine)
        except MqError:
            is_refused = True
        assert is_refused is bool(found[1])
        return found

    assert said() == (None, "")
    file = directory / "identity.json"
    text = file.read_text()
    assert said() == (json.loads(text)["node_id"], "")
    for wrong, why in (
        (text.replace(machine, "1" * 32), "it was made on another machine"),
        (text.replace(str(directory), "/elsewhere"), "it was made for /elsewhere"),
        ("{", f"{file} is not an identity"),
        ("[]", f"{file} is not an identity"),
    ):
        file.write_text(wrong)
        assert said()[1] == why
    file.unlink()
    (directory / "journal").mkdir()
    (directory / "journal/0").touch()
    assert "holds messages" in said()[1]
    change = only(diff_host("mq1", WANTED, seen(node_id=None, trouble=said()[1])))
    assert (change.what, change.action) == ("identity", "by hand")


def test_what_is_no_file_has_no_content(tmp_path: Path) -> None:
    (tmp_path / "round").symlink_to("round")
    for odd in (tmp_path, tmp_path / "round"):
        assert program.text_of(str(odd)) == ""
    assert program.text_of(str(tmp_path / "none")) is None
    # A rollout sets aside what cannot be read as users.
    change = diff_host("mq1", WANTED, seen(users=""))[0]
    assert (change.what, change.action) == ("users", "replace")


@pytest.mark.parametrize(
    ("loaded", "what", "action"),
    [
        ({"release": "0.0.9-bbbbbbbb"}, "running release", "restart"),
        ({"unit_file": None}, "running unit", "restart"),
        # The process was started with it, whatever it has been told since.
        ({"started": OPTIONS.replace("500", "9")}, "running option limits.link-credit", "restart"),
        ({"options": OPTIONS.replace("[limits]", "log-format = 'json'\n[limits]")}, "running option node.log-format",
         "reload"),
        ({"files": {USERS_FILE: digest("{}")}}, "running users", "reload"),
        ({"files": {}}, "running users", "reload"),
        ({"options": "[node"}, "running options", "restart"),
        ({"started": "[node"}, "running options", "restart"),
    ],
)  # fmt: skip
def test_a_rollout_that_was_cut_off_before_the_restart_is_seen(loaded: dict[str, Any], what: str, action: str) -> None:
    stale = replace(LOADED, **loaded)
    change = only(diff_host("mq1", WANTED, seen(loaded=stale)))
    assert (change.what, change.action, change.needs) == (what, action, action)
    assert [one.what for one in diff_host("mq1", WANTED, seen(loaded=stale, active="failed"))] == ["service"]


SECRET_FILE, KEY_FILE = "/var/lib/mq/default/cluster-secret", "/etc/mq/default/tls/server.key"


@pytest.mark.parametrize(
    ("meant", "now", "taken", "lines"),
    [
        ("new", "new", "new", []),
        ("new", "new", "old", [("running file {path}", "reload")]),
        # One that is still to be written has a line of its own, and is reloaded with it where that is needed.
        ("new", "old", "new", []),
        ("new", "old", "old", []),
        (None, "new", "old", [("running file {path}", "reload")]),
        (None, "new", "new", []),
    ],
)
@pytest.mark.parametrize("path", [SECRET_FILE, KEY_FILE, "/etc/ssl/own.pem"])
def test_whatever_a_process_has_taken_is_compared_with_what_is_there(
    path: str, meant: str | None, now: str, taken: str, lines: list[tuple[str, str]]
) -> None:
    loaded = replace(LOADED, files={**LOADED.files, path: taken})
    wanted = replace(WANTED, places={path: HostPlace("file", content=meant)} if meant else {})
    found = seen(loaded=loaded, files={path: now})
    changes = [one for one in diff_host("mq1", wanted, found) if one.what.startswith("running")]
    assert [(one.what, one.action) for one in changes] == [(what.format(path=path), action) for what, action in lines]
    assert {one.needs for one in changes} <= {"reload"}


@pytest.mark.parametrize(
    ("meant", "now", "taken", "needs"),
    [
        # The process has what the rollout puts back.
        ("new", "changed", "new", "none"),
        ("new", "old", "old", "reload"),
        ("new", "changed", "old", "reload"),
        ("new", "old", None, "none"),
    ],
)
@pytest.mark.parametrize("path", [SECRET_FILE, KEY_FILE])
def test_a_file_that_a_process_has_taken_is_reloaded_where_it_becomes_another(
    path: str, meant: str, now: str, taken: str | None, needs: str
) -> None:
    files = LOADED.files if taken is None else {**LOADED.files, path: taken}
    wanted = replace(WANTED, places={path: HostPlace("file", content=meant, is_secret=True)})
    found = replace(seen(loaded=replace(LOADED, files=files)), places={path: HostPlace("file", content=now)})
    lines = [(one.what, one.action, one.needs) for one in diff_host("mq1", wanted, found)]
    assert lines == [(f"file {path}", "change", needs)]


CERTIFICATES = {"server.pem": "aaaaaaaa-1", "ca.pem": "bbbbbbbb-1"}


def secured(on_disk: dict[str, str], running: dict[str, str], **wanted: str | None) -> list[Change]:
    """What differs where certificates are wanted."""
    instance = WantedInstance(OPTIONS, USERS, {**CERTIFICATES, **{f"{name}.pem": one for name, one in wanted.items()}})
    taken = {f"/etc/mq/default/tls/{name}": one for name, one in running.items()}
    found = seen(certificates=on_disk, loaded=replace(LOADED, files={**LOADED.files, **taken}))
    return diff_host("mq1", replace(WANTED, instances={"default": instance}), found)


def test_certificates_are_compared_by_hash_and_reloaded() -> None:
    assert secured(CERTIFICATES, CERTIFICATES) == []
    created = [(one.what, one.action, one.after, one.needs) for one in secured({}, {})]
    assert created == [
        ("certificate server.pem", "create", "aaaaaaaa", "reload"),
        ("certificate ca.pem", "create", "bbbbbbbb", "reload"),
    ]  # fmt: skip
    change = only(secured(CERTIFICATES, CERTIFICATES, server="cccccccc-1"))
    assert (change.what, change.action, change.before, change.after, change.needs) == (
        "certificate server.pem", "change", "aaaaaaaa", "cccccccc", "reload",
    )  # fmt: skip
    change = only(secured(CERTIFICATES, CERTIFICATES, server=None))
    assert (change.action, change.before, change.after) == ("issue", "aaaaaaaa", "a new one")
    change = only(secured(CERTIFICATES, {**CERTIFICATES, "server.pem": "old"}))
    assert (change.what, change.action, change.needs) == ("running certificate server.pem", "reload", "reload")
    removed = diff_host("mq1", WANTED, seen(certificates=CERTIFICATES, loaded=LOADED))
    assert [(one.what, one.action) for one in removed] == [
        ("certificate ca.pem", "remove"), ("certificate server.pem", "remove"),
    ]  # fmt: skip


def test_nothing_has_to_be_restarted_where_nothing_runs() -> None:
    wanted = replace(WANTED, release="0.2.0-bbbbbbbb")
    assert [(one.what, one.needs) for one in diff_host("mq1", wanted, seen(active="inactive"))] == [
        ("release", "none"), ("service", "none"),
    ]  # fmt: skip


def test_the_hash_stands_for_cluster_and_changes() -> None:
    changes = diff_host("mq1", WANTED, Seen())
    assert plan_hash("main", changes) == plan_hash("main", list(changes))
    assert len({plan_hash("main", changes), plan_hash("other", changes), plan_hash("main", changes[:-1])}) == 3


def test_a_secret_that_nobody_reads_any_more_is_removed() -> None:
    there = replace(SEEN, places={SECRET_FILE: HostPlace("file", "mq", "mq", "0600", "old")})
    change = only(diff_host("mq1", WANTED, there))
    assert (change.what, change.action, change.needs) == (f"file {SECRET_FILE}", "remove", "none")
    assert (
        diff_host("mq1", replace(WANTED, places={SECRET_FILE: HostPlace("file", "mq", "mq", "0600", "old")}), there)
        == []
    )
