"""`mqctl support-bundle`: what is in it, and that nothing is in it which is nobody's business."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess, free_port
from tests.support.cluster_processes import SECRET, connection, provide
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.system

BODY = "what nobody else is to read"
NAME_OF_PROPERTY = "property-of-a-message"


def collected(folder: Path, *words: str, code: int = 0) -> tuple[dict[str, bytes], str]:
    """Files by name, and what was said on standard error."""
    command = [sys.executable, "-m", "mqctl.main", "support-bundle", "bundle.tar.gz", "--dev", "--directory", "."]
    done = subprocess.run([*command, *words], cwd=folder, capture_output=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == code, (done.stdout[-2000:], done.stderr[-2000:])
    if code == 1:
        return {}, done.stderr.decode()
    assert (folder / "bundle.tar.gz").stat().st_mode & 0o777 == 0o600
    with tarfile.open(folder / "bundle.tar.gz") as archive:
        names = [each.name for each in archive.getmembers()]
        return {name: (archive.extractfile(name) or open("/dev/null", "rb")).read() for name in names}, ""


@pytest.fixture
def node(tmp_path: Path) -> BrokerProcess:
    options = {
        "node": {"name": "mq1"},
        "listeners": [{"name": "cluster", "kind": "cluster", "port": free_port()}],
        "connectors": [{"name": "mq1", "host": "127.0.0.1", "port": 1}],
        "cluster-connections": [connection("mq1", **{"static-connectors": ["mq1"]})],
    }
    return BrokerProcess(tmp_path / "dev-1", options=options)


def test_it_has_what_helps_and_no_secret_and_no_body(node: BrokerProcess, tmp_path: Path) -> None:
    provide(node)
    with node as broker:
        (tmp_path / "dev-1" / "admin.sock").symlink_to(broker.admin_socket)
        (tmp_path / "dev-1" / "log").symlink_to(broker.log_file)
        message = {"body": BODY, "durable": True, "application_properties": {NAME_OF_PROPERTY: BODY}}
        broker.admin("send", address="orders", messages=[message])
        files, _ = collected(tmp_path)
    place = "support-bundle/dev-1/default/"
    assert json.loads(files[f"{place}status.json"])["messages"] == 1
    assert {f"{place}{name}.json" for name in ("config-show", "metrics", "topology", "events", "health")} <= set(files)
    assert json.loads(files[f"{place}journal-info.json"])["journal_segments"] >= 1
    assert b"ready" in files[f"{place}log"]
    assert "mqctl" in json.loads(files["support-bundle/versions.json"])
    users = json.loads((broker.data_directory / "users.json").read_text())
    verifiers = [text for text in _texts(users) if len(text) > 12 and not text.startswith("SCRAM-")]
    assert verifiers
    whole = b"\n".join(files.values())
    for secret in (BODY, NAME_OF_PROPERTY, SECRET, broker.password, *verifiers):
        assert secret.encode() not in whole, secret
    with gzip.open(tmp_path / "bundle.tar.gz") as stream:
        assert b"orders" in stream.read(), "what is there is found this way"
    assert "cannot be made" in collected(tmp_path, code=1)[1]


def test_a_node_that_does_not_answer_is_named_in_it(node: BrokerProcess, tmp_path: Path) -> None:
    """Of its journal is there what others would ask for first."""
    provide(node)
    with node as broker:
        broker.admin("send", address="orders", messages=[{"body": BODY, "durable": True}])
        broker.stop()
        (tmp_path / "dev-1" / "admin.sock").touch()
        files, _ = collected(tmp_path, code=3)
    place = "support-bundle/dev-1/default/"
    assert files[f"{place}missing.txt"].count(b"\n") == 2  # that no broker answers, and that there is no log
    journal = json.loads(files[f"{place}journal-info.json"])
    assert (journal["messages"], [one["name"] for one in journal["queues"]]) == (1, ["orders"])
    assert BODY.encode() not in b"\n".join(files.values())


def test_what_is_wrong_with_a_journal_is_in_it(node: BrokerProcess, tmp_path: Path) -> None:
    provide(node)
    with node as broker:
        broker.stop()
        (tmp_path / "dev-1" / "admin.sock").touch()
        for file in (broker.data_directory / "journal").iterdir():
            file.write_bytes(b"\1" * file.stat().st_size)
        files, _ = collected(tmp_path, code=3)
    assert b"journal" in files["support-bundle/dev-1/default/missing.txt"]
    assert "support-bundle/dev-1/default/journal-info.json" not in files


def _texts(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for each in value.values() for text in _texts(each)]
    if isinstance(value, list):
        return [text for each in value for text in _texts(each)]
    return [value] if isinstance(value, str) else []
