"""Hosts that fall silent without a word: every wait for one ends, and the next attempt goes over another connection."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from mqctl.errors import Unreachable
from mqctl.ssh import shell as remote
from mqctl.ssh.pool import SshConnector
from mqctl.ssh.shell import Shell
from mqctl.ssh.variables import access_of

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from support.ssh_mute import COMMAND, MuteServer
from support.ssh_relay import Relay
from support.ssh_server import SshServer, keygen

from tests.support.patience import PATIENCE_S, wait_until

TIMEOUT_S = 3  # of ssh: what a busy machine does not do within it is done again


@pytest.fixture
def connector(monkeypatch: pytest.MonkeyPatch) -> Iterator[SshConnector]:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    one = SshConnector()
    yield one
    one.close()


def reach(connector: SshConnector, variables: dict[str, object], name: str = "mq1") -> Shell:
    """A shell there that has run a command. A host that was slow once is asked again."""
    shells: list[Shell] = []

    def is_reached() -> bool:
        try:
            shell = connector.shell(access_of(name, variables, {}))
            remote.run(shell, ["true"], timeout_s=PATIENCE_S)
        except Unreachable:
            return False
        shells.append(shell)
        return True

    wait_until(is_reached, f"{name} is reached")
    return shells[0]


def test_a_command_that_the_host_does_not_answer(connector: SshConnector, tmp_path: Path) -> None:
    """It opened the session for it, and then lost its power."""
    known_hosts = tmp_path / "known_hosts"
    with MuteServer(known_hosts) as server:
        variables = {
            "ansible_host": "127.0.0.1",
            "ansible_port": server.port,
            "ansible_ssh_private_key_file": str(keygen(tmp_path / "key")),
            "ansible_ssh_common_args": f"-F /dev/null -o UserKnownHostsFile={known_hosts}",
            "ansible_ssh_timeout": TIMEOUT_S,
            "ansible_become": False,
        }
        shell = reach(connector, variables)
        server.mute_at = COMMAND
        with pytest.raises(Unreachable, match="no answer in time"):
            remote.run(shell, ["true"], timeout_s=PATIENCE_S)
        server.mute_at = ""
        assert reach(connector, variables) is not shell


def test_a_host_that_takes_no_more_of_what_is_sent(connector: SshConnector, tmp_path: Path) -> None:
    """Nothing more fits between it and us, and paramiko tries to send that for as long as TCP does."""
    server = SshServer(tmp_path / "server")
    try:
        with Relay(server, buffer_bytes=4096) as relay:
            variables = server.variables(ansible_port=relay.port, ansible_ssh_timeout=TIMEOUT_S)
            shell = reach(connector, variables)
            stream = remote.open_stream(shell, ["cat"])
            relay.hold()
            stream.settimeout(1)
            with pytest.raises((OSError, EOFError)):
                stream.sendall(b"x" * 2**24)
            stream.close()
            with pytest.raises(Unreachable):
                remote.run(shell, ["cat"], b"x" * 2**24, timeout_s=1)
            assert reach(connector, variables) is not shell
    finally:
        server.close()
