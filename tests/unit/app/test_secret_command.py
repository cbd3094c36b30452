"""`mqbroker secret set`, and what a start and a check say of the file."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import pytest
from mqbroker.app import exits
from mqbroker.app.main import main
from mqbroker.base.errors import ConfigFault
from mqbroker.cluster.discovery.datagram import derive_key
from mqbroker.config.file.load import parse
from mqbroker.config.slices import BrokerOptions
from mqbroker.io.files import cluster_secret

SECRET = "canary-0123456789"
GROUPS = (
    '[[connectors]]\nname = "cluster"\nhost = "192.0.2.1"\nport = 5673\n'
    '[[broadcast-groups]]\nname = "lan"\ngroup-address = "231.7.7.7"\ngroup-port = 9876\nconnector-ref = "cluster"\n'
    "local-bind-port = 9000\n"
)


def secret(file: Path, text: bytes, *words: str) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
        return main(["secret", "set", "--stdin", "--file", str(file), *words])


def test_set_reports_changes_honestly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "cluster-secret"
    for text, words, said in (
        (SECRET + "\n", ["--check"], "changed"),
        (SECRET + "\n", [], "changed"),
        (SECRET, [], "unchanged"),
        (SECRET + "\r\n", ["--check"], "unchanged"),
        (SECRET + "2", ["--check"], "changed"),
    ):
        assert secret(file, text.encode(), *words) == exits.DONE
        assert capsys.readouterr().out == said + "\n"
    assert (file.read_text(), file.stat().st_mode & 0o777) == (SECRET + "\n", 0o600)
    assert secret(file, SECRET.encode(), "--json") == exits.DONE
    assert json.loads(capsys.readouterr().out) == {"schema": 1, "changed": False}


def test_a_file_that_others_can_read_is_written_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "cluster-secret"
    file.write_text(SECRET + "\n")
    file.chmod(0o644)
    assert secret(file, SECRET.encode()) == exits.DONE
    assert (capsys.readouterr().out, file.stat().st_mode & 0o777) == ("changed\n", 0o600)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"CHANGE ME!!", "is a well-known default"),
        (b"changeme\n", "is a well-known default"),
        (b"0123456789abcde", "has less than 16 characters"),
        (b"", "has less than 16 characters"),
        (b"x" * 1024, "must be one line of at most 1023 bytes"),
        (b"0123456789abcdef\nmore", "must be one line"),
        (b"\xff" * 20, "is not UTF-8"),
    ],
)
def test_what_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: bytes, why: str) -> None:
    assert secret(tmp_path / "cluster-secret", text) == exits.FAILED
    assert why in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_check_replaces_what_cannot_be_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "cluster-secret"
    file.write_bytes(b"\xff")
    assert secret(file, SECRET.encode(), "--check") == exits.DONE
    assert capsys.readouterr().out == "changed\n"


def options(directory: Path, text: str) -> BrokerOptions:
    found = parse(f'[node]\ndata-directory = "{directory}"\n{text}')
    assert isinstance(found, BrokerOptions), found
    return found


@pytest.mark.option("node.cluster-secret-file")
def test_the_file_is_read_where_there_are_groups(tmp_path: Path) -> None:
    assert cluster_secret.key(options(tmp_path, "")) == b""
    with pytest.raises(ConfigFault, match=r"there is no .*cluster-secret, .*mqbroker secret set --stdin"):
        cluster_secret.key(options(tmp_path, GROUPS))
    cluster_secret.write(tmp_path / "cluster-secret", SECRET)
    assert cluster_secret.key(options(tmp_path, GROUPS)) == derive_key(SECRET)
    elsewhere = options(tmp_path, f'cluster-secret-file = "{tmp_path}/other"\n{GROUPS}')
    cluster_secret.write(tmp_path / "other", SECRET * 2)
    assert cluster_secret.key(elsewhere) == derive_key(SECRET * 2)


def test_nodes_with_cluster_connections_need_the_secret(tmp_path: Path) -> None:
    connectors = "".join(f'[[connectors]]\nname = "{name}"\nhost = "192.0.2.1"\nport = 5673\n' for name in ("a", "b"))
    connection = '[[cluster-connections]]\nname = "all"\nconnector-ref = "a"\nstatic-connectors = ["b"]\n'
    assert cluster_secret.key(options(tmp_path, connectors)) == b""
    (fault,) = cluster_secret.faults_of(options(tmp_path, connectors + connection))
    assert fault.path == "node.cluster-secret-file"


@pytest.mark.parametrize("content", [b"CHANGE ME!!\n", b"\xff" * 20, b"short", b"x" * 1024])
def test_a_file_that_cannot_be_used_is_told_of_and_not_shown(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "cluster-secret").write_bytes(content)
    (fault,) = cluster_secret.faults_of(options(tmp_path, GROUPS))
    assert fault.path == "node.cluster-secret-file"
    assert str(tmp_path / "cluster-secret") in fault.why
    assert "CHANGE" not in fault.why


def test_a_fifo_in_its_place_is_told_of_and_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "cluster-secret"
    os.mkfifo(file)
    (fault,) = cluster_secret.faults_of(options(tmp_path, GROUPS))
    assert fault.path == "node.cluster-secret-file"
    assert fault.why.startswith(f"{file} cannot be read: Is a FIFO and no regular file; run `mqbroker secret set")
    for words in (["--check"], []):
        assert secret(file, SECRET.encode(), *words) == exits.DONE
        assert capsys.readouterr().out == "changed\n"
    assert file.read_text() == SECRET + "\n"


def test_a_secret_that_cannot_be_put_in_its_place_is_nowhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "cluster-secret"
    file.mkdir()
    assert secret(file, SECRET.encode()) == exits.FAILED
    assert f"{file}: cannot be written: Is a directory" in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["cluster-secret"]


def test_a_check_of_options_finds_the_missing_file_and_warns_of_doubts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(f'[node]\ndata-directory = "{tmp_path}"\n{GROUPS}')
    assert main(["config", "check", str(file)]) == exits.FAILED
    assert "node.cluster-secret-file: there is no" in capsys.readouterr().err
    cluster_secret.write(tmp_path / "cluster-secret", SECRET)
    assert main(["config", "check", str(file)]) == exits.DONE
    said = capsys.readouterr()
    assert said.err.startswith(f"mqbroker: {file}: warning: broadcast-groups.0.local-bind-port: is 9000 and means")
    assert "good" in said.out
