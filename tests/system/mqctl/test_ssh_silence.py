"""Hosts and jump hosts that fall silent without a word: every wait ends, and the next attempt takes another way."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import paramiko
import pytest
from mqctl.errors import LoginRefused, NotBegun, Unreachable
from mqctl.ssh import client
from mqctl.ssh import shell as remote
from mqctl.ssh.client import SESSIONS_MAX
from mqctl.ssh.pool import SshConnector
from mqctl.ssh.shell import CommandStream, Shell
from mqctl.ssh.variables import Access, access_of

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from support.ssh_mute import COMMAND, LASTING, LOGIN, MuteServer
from support.ssh_relay import Relay
from support.ssh_server import SshServer, keygen

from tests.support.patience import PATIENCE_S, wait_until

STREAMS = 6
IDENTITIES = 12  # what an agent answers: SSH_AGENT_IDENTITIES_ANSWER
TIMEOUT_S = 3  # of ssh: what a busy machine does not do within it is done again


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


def why_not(connector: SshConnector, access: Access) -> str:
    try:
        connector.shell(access)
    except Unreachable as fault:
        return fault.what
    return ""


def directly(port: int, known_hosts: Path, *keys: Path) -> dict[str, object]:
    """Variables of a host that is at `port` of this machine."""
    named = " ".join(f"-o IdentityFile={key}" for key in keys)
    return {
        "ansible_host": "127.0.0.1",
        "ansible_port": port,
        "ansible_ssh_common_args": f"-F /dev/null -o UserKnownHostsFile={known_hosts} {named}",
        "ansible_ssh_timeout": TIMEOUT_S,
        "ansible_become": False,
    }


def test_a_command_that_the_host_does_not_answer(connector: SshConnector, tmp_path: Path) -> None:
    """It opened the session for it, and then lost its power."""
    known_hosts = tmp_path / "known_hosts"
    with MuteServer(known_hosts) as server:
        variables = directly(server.port, known_hosts, keygen(tmp_path / "key"))
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
            shell, streams = begin(connector, variables)
            relay.hold()
            with pytest.raises(EOFError):
                fill(streams)
            for stream in streams:
                stream.close()
            with pytest.raises(Unreachable, match="no answer in time"):
                remote.run(shell, ["true"], timeout_s=PATIENCE_S)
            assert reach(connector, variables) is not shell
    finally:
        server.close()


def begin(connector: SshConnector, variables: dict[str, object]) -> tuple[Shell, list[CommandStream]]:
    """A shell, and commands that run there and last."""
    begun: list[tuple[Shell, list[CommandStream]]] = []

    def is_begun() -> bool:
        shell = reach(connector, variables)
        try:
            begun.append((shell, [remote.open_stream(shell, [LASTING]) for _ in range(STREAMS)]))
        except Unreachable:
            shell.close()
        return bool(begun)

    wait_until(is_begun, "commands run there")
    return begun[0]


def fill(streams: list[CommandStream]) -> None:
    """Send until nothing more fits between the host and us, which takes more than the window of one command."""
    for stream in streams:
        stream.settimeout(0.1)
        with contextlib.suppress(TimeoutError):  # its window is used up
            stream.sendall(b"x" * 2**22)


@pytest.mark.parametrize("more", [{}, {"ansible_connection": "local"}])
def test_a_command_that_does_not_read_what_it_needs_takes_nobody_s_place(
    connector: SshConnector, tmp_path: Path, more: dict[str, object]
) -> None:
    """The password for sudo, behind which something closes the session at once."""
    server = SshServer(tmp_path / "server")
    try:
        shell = reach(connector, server.variables(**more))
        for _ in range(SESSIONS_MAX + 1):
            with pytest.raises(Unreachable):
                shell.open_plain("true", b"x" * 2**23)
        assert remote.run(shell, ["echo", "x"], timeout_s=PATIENCE_S).out == b"x\n"
    finally:
        server.close()


@pytest.mark.one_day_in_three(0)
def test_a_command_that_is_given_up_while_nothing_can_be_sent(
    connector: SshConnector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own end cannot be sent either: that is no traceback."""
    faults: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", faults.append)
    known_hosts = tmp_path / "known_hosts"
    with MuteServer(known_hosts) as server, ThreadPoolExecutor() as pool:
        variables = directly(server.port, known_hosts, keygen(tmp_path / "key"))
        shell, streams = begin(connector, variables | {"ansible_ssh_timeout": 10})
        server.mute_at = COMMAND
        command = pool.submit(remote.run, shell, ["true"], timeout_s=PATIENCE_S)
        assert server.is_muted.wait(PATIENCE_S)
        limits = [one for one in threading.enumerate() if isinstance(one, threading.Timer)]
        with pytest.raises((EOFError, OSError)):
            fill(streams)
        with pytest.raises(Unreachable, match="no answer in time"):
            command.result(PATIENCE_S)
        for limit in limits:
            limit.join(PATIENCE_S)
        assert not faults


@pytest.mark.parametrize("target", [None, client._drain, client._write])
def test_a_command_for_which_there_are_no_threads_takes_nobody_s_place(
    connector: SshConnector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: Callable[..., None] | None
) -> None:
    """And nothing is written to it, such as a password. `target`: of the thread, None: one with a limit of time."""
    whole = threading.Thread.start

    def start(one: threading.Thread) -> None:
        # Python names a thread after what it is to do: `Thread-7 (_drain)`.
        if one.name.endswith(f"({target.__name__})") if target else isinstance(one, threading.Timer):
            raise RuntimeError("can't start new thread")
        whole(one)

    server = SshServer(tmp_path / "server")
    try:
        shell = reach(connector, server.variables())
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", start)
            for _ in range(SESSIONS_MAX + 1):  # sshd hears of their ends a moment later
                with pytest.raises(NotBegun, match="can't start new thread"):
                    remote.run(shell, ["true"], timeout_s=PATIENCE_S)
        assert remote.run(shell, ["echo", "x"], timeout_s=PATIENCE_S).out == b"x\n"
    finally:
        server.close()


def test_a_login_that_the_host_does_not_answer(
    connector: SshConnector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has refused nobody, and no other key has to wait for it as well."""
    offered: list[Path] = []
    from_path = paramiko.PKey.from_path

    def noted(path: Path, passphrase: bytes | None) -> paramiko.PKey:
        offered.append(path)
        return from_path(path, passphrase)

    monkeypatch.setattr(paramiko.PKey, "from_path", noted)
    known_hosts = tmp_path / "known_hosts"
    keys = [keygen(tmp_path / name) for name in ("first", "second", "third")]
    with MuteServer(known_hosts) as server:
        server.mute_at = LOGIN
        with pytest.raises(Unreachable, match="no answer in time") as caught:
            connector.shell(access_of("mq1", directly(server.port, known_hosts, *keys), {}))
        assert not isinstance(caught.value, LoginRefused)
        assert set(offered) <= set(keys[:1])


def test_a_login_that_the_host_answers_late(connector: SshConnector, tmp_path: Path) -> None:
    """It asks a directory who that is, for each key."""
    known_hosts = tmp_path / "known_hosts"
    keys = [keygen(tmp_path / name) for name in ("first", "second")]
    with MuteServer(known_hosts) as server:
        server.mute_at = LOGIN
        server.silence_s = 1.2 * TIMEOUT_S
        reach(connector, directly(server.port, known_hosts, *keys))


@pytest.mark.parametrize("banner", [b"", b"SSH-2.0-silent\r\n"])
def test_a_host_that_begins_no_session(connector: SshConnector, tmp_path: Path, banner: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        access = access_of("mq1", directly(silent.getsockname()[1], tmp_path / "known_hosts"), {})

        def greet() -> None:
            here, _ = silent.accept()
            with here, contextlib.suppress(OSError):
                here.sendall(banner)
                while here.recv(65536):
                    pass

        threading.Thread(target=greet, daemon=True).start()
        with pytest.raises(Unreachable, match="no answer in time"):
            connector.shell(access)


def test_an_agent_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was passed on from a machine that sleeps. The key of the host lies in a file."""
    is_told_of_an_agent(tmp_path, monkeypatch, None, "no answer in time)", ansible_ssh_timeout=TIMEOUT_S)


def test_an_agent_that_answers_what_nobody_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A comment of a key in Latin-1, say."""
    comment = "clé".encode("latin-1")
    fields = [(1).to_bytes(4, "big"), *(len(one).to_bytes(4, "big") + one for one in (b"key", comment))]
    is_told_of_an_agent(tmp_path, monkeypatch, bytes([IDENTITIES]) + b"".join(fields), "'utf-8' codec")


def is_told_of_an_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes | None, why: str, **more: object
) -> None:
    """Beside an agent that answers so, or not at all, a key in a file is enough; a login without one says why."""
    server = SshServer(tmp_path / "server")
    connector = SshConnector()
    try:
        with socket.socket(socket.AF_UNIX) as agent:
            agent.bind(str(tmp_path / "agent"))
            agent.listen(8)
            if answer is not None:
                threading.Thread(target=answer_all, args=(agent, answer), daemon=True).start()
            monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
            variables = server.variables(**more)
            reach(connector, variables)
            (server.folder / "authorized_keys").write_text("")
            access = access_of("mq2", variables, {})
            said = f"the agent cannot be used ({why}"
            wait_until(lambda: said in why_not(connector, access), "it is told why no key of the agent was offered")
    finally:
        connector.close()
        server.close()


def answer_all(agent: socket.socket, answer: bytes) -> None:
    with contextlib.suppress(OSError):
        while True:
            here, _ = agent.accept()
            with here:
                here.sendall(len(answer).to_bytes(4, "big") + answer)
                here.recv(65536)


def behind(server: SshServer, jump: SshServer, port: int, **more: object) -> dict[str, object]:
    """Variables of a host that is reached through the jump host at `port`."""
    config = server.folder / "config"
    config.write_text(
        f"Host jump\n  HostName 127.0.0.1\n  Port {port}\n  User {jump.user}\n"
        f"  IdentityFile {jump.client_key}\n  UserKnownHostsFile {jump.known_hosts}\n"
    )
    args = f"-F {config} -o ProxyJump=jump -o UserKnownHostsFile={server.known_hosts}"
    return server.variables(ansible_ssh_common_args=args, **more)


@pytest.fixture
def server_and_jump(tmp_path: Path) -> Iterator[tuple[SshServer, SshServer]]:
    server, jump = SshServer(tmp_path / "server"), SshServer(tmp_path / "jump")
    yield server, jump
    server.close()
    jump.close()


def test_a_jump_host_that_falls_silent_is_connected_to_again(
    server_and_jump: tuple[SshServer, SshServer], connector: SshConnector
) -> None:
    """It lost its power without a word, and is back."""
    server, jump = server_and_jump
    with Relay(jump) as relay:
        variables = behind(server, jump, relay.port, ansible_ssh_timeout=TIMEOUT_S)
        shell = reach(connector, variables)
        relay.hold()
        assert reach(connector, variables) is not shell


@pytest.mark.one_day_in_three(1)
def test_a_jump_host_that_answers_is_kept_where_a_host_behind_it_is_silent(
    server_and_jump: tuple[SshServer, SshServer], connector: SshConnector
) -> None:
    server, jump = server_and_jump
    with socket.socket() as silent, contextlib.ExitStack() as waiting:
        silent.bind(("127.0.0.1", 0))
        silent.listen(0)
        address = silent.getsockname()
        for _ in range(4):  # more than it holds: whoever comes now hears nothing
            one = waiting.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(address)
        variables = behind(server, jump, jump.port) | {"ansible_ssh_timeout": 20}
        reach(connector, variables)
        gone = access_of("mq2", variables | {"ansible_port": address[1], "ansible_ssh_timeout": 10}, {})
        with pytest.raises(Unreachable, match=rf"has not reached 127\.0\.0\.1:{address[1]} in time"):
            connector.shell(gone)
        reach(connector, variables, "mq3")
        assert jump.logins == 1


@pytest.mark.parametrize(("is_deaf", "complaint", "dials"), [(False, "lets nobody in", 6), (True, "", 24)])
def test_a_jump_host_has_its_rest_however_many_hosts_lie_behind_it(
    server_and_jump: tuple[SshServer, SshServer], monkeypatch: pytest.MonkeyPatch, complaint: str, dials: int, *,
    is_deaf: bool,
) -> None:  # fmt: skip
    """Each of them is looked at each half of a second, for two minutes of which none passes here."""
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    server, jump = server_and_jump
    now_s = 0.0
    connector = SshConnector(lambda: now_s)
    names = [f"mq{number}" for number in range(1, 5)]
    with Relay(jump) as relay:
        variables = behind(server, jump, relay.port)
        for name in names:
            reach(connector, variables, name)
        (jump.folder / "authorized_keys").write_text("")
        relay.is_deaf = is_deaf
        jump.hang_up()
        wait_until(
            lambda: not any(isinstance(one, paramiko.Transport) for one in threading.enumerate()),
            "it is known that the connections broke",
        )
        for look in range(240):
            now_s = look / 2
            for name in (*names, *["mq9"] * (look % 60 == 0)):
                with pytest.raises(Unreachable, match=f"{name}: .*{complaint}"):
                    connector.shell(access_of(name, variables, {}))
        assert relay.accepted == 1 + dials
        (jump.folder / "authorized_keys").write_text(jump.client_key.with_suffix(".pub").read_text())
        relay.is_deaf = False
        now_s += 30
        for name in names:
            connector.shell(access_of(name, variables, {}))
        assert relay.accepted == 2 + dials
    connector.close()
