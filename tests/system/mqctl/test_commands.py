"""The command line from end to end on commands that touch no host: files, exit codes, sentences."""

from __future__ import annotations

import io
import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from mqctl.declare import InventoryOptions
from mqctl.errors import UsageError
from mqctl.exits import Exit
from mqctl.inventory import choose, load_all
from mqctl.inventory_faults import doubts_in
from mqctl.main import COMMANDS, execute, make_app, wanted
from mqctl.output import Format, OutputShape
from mqctl.rollout.cluster_plan import Plan, show_plan
from mqctl.world import real_world
from rich.console import Console

from tests.support.patience import PATIENCE_S

VAULT = str(Path(sys.executable).parent / "ansible-vault")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MQCTL_INVENTORY", raising=False)
    return tmp_path


def test_init_writes_what_check_accepts(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["init", "mq1=192.0.2.11", "mq2"]) == 0
    assert stat.S_IMODE((place / "group_vars/brokers/secrets.yml").stat().st_mode) == 0o600
    secrets = yaml.safe_load((place / "group_vars/brokers/secrets.yml").read_text())
    passwords = [secrets["mq_cluster_secret"], secrets["mq_users"][0]["password"]]
    assert all(len(one) >= 32 for one in passwords)
    said = capsys.readouterr()
    assert "ansible-vault encrypt" in said.err
    assert not any(one in said.out + said.err for one in passwords)
    assert execute(["inventory", "check", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["host"], row["address"], row["cluster"]) for row in rows] == [
        ("mq1", "192.0.2.11", "main"), ("mq2", "mq2", "main"),
    ]  # fmt: skip


def test_init_overwrites_nothing(place: Path) -> None:
    assert execute(["init", "mq1"]) == 0
    before = {path: path.read_text() for path in place.rglob("*.yml")}
    assert execute(["init", "--cluster", "other"]) == 0
    assert {path: path.read_text() for path in place.rglob("*.yml")} == before
    assert len(before) == 3


def test_what_stands_twice_in_an_inventory_is_refused(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ansible takes the last one and warns, and a host, or all users but those of the second list, would be gone."""
    assert execute(["init", "mq1"]) == 0
    options = place / "group_vars/brokers/options.yml"
    options.write_text("mq_diverts: []\nmq_diverts: []\n")
    (place / "inventory.yml").write_text("brokers:\n  hosts:\n    mq1: {ansible_host: a}\n    mq1: {ansible_host: b}\n")
    for command in (["inventory", "check"], ["plan"]):
        capsys.readouterr()
        assert execute(command) == 2
        said = capsys.readouterr().err
        assert f"mq1 ({place}/inventory.yml:4:5)" in said
        assert f"mq_diverts ({options}:" in said
        assert "leave one of each in the inventory" in said
    # Who says that he wants it so is taken at his word.
    monkeypatch.setenv("ANSIBLE_DUPLICATE_YAML_DICT_KEY", "ignore")
    assert execute(["inventory", "check"]) == 0


def test_init_beside_an_inventory_that_is_there(place: Path) -> None:
    (place / "hosts.ini").write_text("[web]\nw1\n[mq]\nmq1\n")
    assert execute(["init", "-i", "hosts.ini"]) == Exit.USAGE
    assert execute(["init", "-i", "hosts.ini", "--group", "mq"]) == 0
    assert (place / "group_vars/mq/secrets.yml").exists()
    assert execute(["inventory", "check", "-i", "hosts.ini"]) == 0


def test_every_fault_of_an_inventory_at_once(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    execute(["init", "mq1", "mq2"])
    (place / "inventory.yml").write_text(
        "brokers:\n  hosts:\n    mq1: {mq_uidd: 7}\n    mq2: {ansible_connection: docker, mq_uid: -1}\n"
    )
    capsys.readouterr()
    assert execute(["inventory", "check", "-o", "csv"]) == Exit.USAGE
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 1 + 3
    for part in ("mq_uidd", "did you mean mq_uid", "ansible_connection=docker", "at least 1"):
        assert part in said.out
    assert "the inventory has 3 faults" in said.err


@pytest.mark.parametrize(
    ("words", "said", "attempt"),
    [
        (["status"], "inventory inventory.yml: there is no such file", "mqctl init"),
        (["status", "-i", "x.yml"], "inventory x.yml: there is no such file", "mqctl inventory check"),
        (["init", "--cluster", "Ä"], "--cluster Ä", "--cluster main"),
        (["init", "mq1=a b"], "mq1=a b is not a host", "mqctl init mq1="),
        (["bundle", "build", "--python", "2"], "--python 2", "--python 3.11"),
        (["bundle", "show", "nowhere"], "there is no such folder", "mqctl bundle build"),
        (["dev", "status", "--directory", "nowhere"], "there is no dev cluster", "mqctl dev up"),
    ],
)
def test_what_is_wrong_where_and_what_to_try(
    words: list[str], said: str, attempt: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(words) == Exit.USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    first, second = captured.err.splitlines()
    assert first.startswith("mqctl: ")
    assert said in first
    assert second.startswith("try: ")
    assert attempt in second


def test_an_inventory_that_ansible_cannot_read(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "inventory.yml").write_text("brokers: [\n")
    assert execute(["inventory", "check"]) == Exit.USAGE
    assert "ansible-inventory -i" in capsys.readouterr().err


def test_health_says_what_is_wrong_in_the_inventory(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    execute(["init", "mq1"])
    (place / "group_vars/brokers/more.yml").write_text("mq_metrics_port: many\n")
    capsys.readouterr()
    assert execute(["health"]) == Exit.FAILED
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("mqctl: mq1: mq_metrics_port")
    assert second == "try: mqctl inventory check"


def test_a_vaulted_file_is_opened_with_the_password_file(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    execute(["init", "mq1"])
    (place / "pw").write_text("opensesame\n")
    secrets = place / "group_vars/brokers/secrets.yml"
    command = [VAULT, "encrypt", "--vault-password-file", "pw", str(secrets)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    assert execute(["inventory", "check"]) == Exit.USAGE
    assert "secrets.yml" in capsys.readouterr().err
    assert execute(["inventory", "check", "--vault-password-file", "pw"]) == 0


def test_templates_and_single_encrypted_values_are_filled_in_by_ansible(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place))
    execute(["init", "mq1"])
    (place / "pw").write_text("opensesame\n")
    command = [VAULT, "encrypt_string", "--vault-password-file", "pw", "canary-become", "--name"]
    done = subprocess.run([*command, "ansible_become_password"], check=True, capture_output=True, timeout=60)
    (place / "group_vars/brokers/more.yml").write_text(
        done.stdout.decode() + "net: 192.0.2\nansible_host: '{{ net }}.{{ inventory_hostname[2:] }}1'\n"
        "mq_broker_options:\n  limits:\n    link_credit: '{{ 40 * 2 }}'\n"
    )
    capsys.readouterr()
    world = real_world()
    (cluster,) = load_all(world, InventoryOptions(vault_password_file=Path("pw")))
    (host,) = cluster.hosts
    assert host.access.arguments[-1] == "192.0.2.11"
    assert host.access.become.password == "canary-become"
    assert host.variables["mq_broker_options"] == {"limits": {"link_credit": 80}}
    assert not list(place.glob("mqctl-run-*"))
    (place / "group_vars/brokers/more.yml").write_text("ansible_host: '{{ nowhere }}'\n")
    with pytest.raises(UsageError, match=r"mq1: ansible_host: .*nowhere"):
        load_all(world, InventoryOptions())


@pytest.mark.parametrize("words", [["nonsense"], ["status", "--nonsense"], ["send"], ["status", "--timeout", "0"]])
def test_wrong_usage(words: list[str]) -> None:
    assert execute(words) == Exit.USAGE


def test_a_command_line_imports_only_its_own_command() -> None:
    assert wanted(["queue", "list", "--json"]) == [("queue", "list")]
    assert wanted(["queue"]) == wanted(["--help"]) == wanted([]) == list(COMMANDS)
    assert len(make_app([("queue", "list")]).registered_groups) == 1


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_has_help(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert execute([*words, "--help"]) == 0
    assert f"Usage: mqctl {' '.join(words)} " in capsys.readouterr().out


def test_preflight_of_groups_without_multicast_has_nothing_to_probe(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["init", "mq1=192.0.2.11", "mq2=192.0.2.12", "--interface", "eth1"]) == 0
    cluster = place / "group_vars/brokers/cluster.yml"
    gossip = {"name": "talk", "discovery": "gossip", "local_bind_port": 7800, "peers": ["mq1:7800", "mq2:7800"]}
    options = {
        "mq_connectors": [{"name": "cluster", "port": 5673}],
        "mq_broadcast_groups": [{**gossip, "connector_ref": "cluster"}],
        "mq_discovery_groups": [gossip, {"name": "share", "discovery": "file", "directory": "/srv/nodes"}],
    }
    cluster.write_text(cluster.read_text() + yaml.safe_dump(options))
    capsys.readouterr()
    assert execute(["preflight", "--multicast", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["multicast"], {row["level"] for row in document["rows"]}) == ([], {"ok"})


def test_what_is_hardly_meant_is_a_warning_and_holds_up_nobody(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    execute(["init", "mq1", "mq2"])
    assert execute(["inventory", "check"]) == 0
    assert "warning: " not in capsys.readouterr().err
    (place / "group_vars/brokers/more.yml").write_text('mq_security_settings: [{match: "#", send: [shpo]}]\n')
    assert execute(["inventory", "check", "--json"]) == 0
    said = capsys.readouterr()
    ((doubt),) = json.loads(said.out)["doubts"]
    assert doubt["path"] == "mq_security_settings.0.send"
    assert "the role shpo, which no user in mq_users has" in doubt["why"]
    assert f"warning: {doubt['path']} {doubt['why']}\n" in said.err
    # A plan tells it as well, before it looks at any host.
    options = InventoryOptions()
    world = real_world()
    plan = Plan("main", [], {}, [], doubts=doubts_in(choose(load_all(world, options), "")))
    out = io.StringIO()
    show_plan(world, plan, OutputShape(Format.JSON), Console(file=out))
    assert json.loads(out.getvalue())["doubts"] == [doubt]
    assert f"warning: {doubt['path']} {doubt['why']}\n" in capsys.readouterr().err


def test_commands_that_ask_brokers_import_no_model_of_options() -> None:
    """What these import takes as long as all the rest of a short command."""
    code = "import sys, mqctl.main\nmqctl.main.make_app([(*sys.argv[1].split(),)])\nprint(*sys.modules)"
    for words in ("status", "queue list", "address list", "send", "receive", "topology"):
        said = subprocess.run(
            [sys.executable, "-c", code, words], capture_output=True, text=True, check=True, timeout=PATIENCE_S
        )
        names = said.stdout.split()
        assert "mqctl.inventory" in names
        assert not {"pydantic", "mqbroker.config.declarations.variables"} & set(names), words
