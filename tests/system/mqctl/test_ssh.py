"""Shells over a real sshd: every way in that an inventory can name, and every refusal."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from mqctl.errors import CommandError, NotBegun, Unreachable, UsageError
from mqctl.fanout import on_each
from mqctl.ssh import shell as remote
from mqctl.ssh.pool import SshConnector
from mqctl.ssh.shell import CommandResult, Shell
from mqctl.ssh.variables import access_of

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from support.ssh_relay import Relay
from support.ssh_server import SshServer, free_port, keygen

from tests.support.patience import PATIENCE_S, wait_until


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SshServer]:
    one = SshServer(tmp_path / "server")
    yield one
    one.close()


def reach(connector: SshConnector, variables: dict[str, object], name: str = "mq1") -> Shell:
    """A shell there. sshd answers a login before it writes of it, and runs a command only behind that."""
    shell = connector.shell(access_of(name, variables, {}))
    run(shell, ["true"])
    return shell


def run(shell: Shell, command: list[str], stdin: bytes = b"", timeout_s: float = PATIENCE_S) -> CommandResult:
    """A command that has its time, however busy the machine is."""
    return remote.run(shell, command, stdin, timeout_s)


def test_a_command_with_input_output_errors_and_exit_code(server: SshServer, connector: SshConnector) -> None:
    shell = reach(connector, server.variables())
    result = run(shell, ["sh", "-c", "cat; echo 'it is $HOME' >&2; exit 7"], b"x" * 3_000_000)
    assert (result.code, result.out, result.complaint) == (7, b"x" * 3_000_000, "it is $HOME")


def test_a_stream_in_both_directions(server: SshServer, connector: SshConnector) -> None:
    stream = remote.open_stream(reach(connector, server.variables()), ["sh", "-c", "cat; echo gone >&2; exit 3"])
    stream.settimeout(PATIENCE_S)
    for text in (b"one\n", b"two\n"):
        stream.sendall(text)
        assert stream.recv(100) == text
    stream.close()


def test_a_stream_says_why_it_ended(server: SshServer, connector: SshConnector) -> None:
    stream = remote.open_stream(reach(connector, server.variables()), ["sh", "-c", "echo no broker here >&2; exit 1"])
    stream.settimeout(PATIENCE_S)
    assert stream.recv(100) == b""
    assert stream.complaint() == "no broker here"


def test_more_commands_at_once_than_a_connection_may_have(server: SshServer, connector: SshConnector) -> None:
    names = [str(number) for number in range(20)]
    shell = reach(connector, server.variables())
    outcomes = dict(on_each(names, lambda name: run(shell, ["sh", "-c", f"sleep 0.1; echo {name}"]).out))
    assert outcomes == {name: f"{name}\n".encode() for name in names}
    assert server.logins == 1


def test_a_command_that_does_not_end_in_time(server: SshServer, connector: SshConnector) -> None:
    shell = reach(connector, server.variables())
    started_s = time.monotonic()
    with pytest.raises(Unreachable, match=r"mq1: no answer within 0\.5 s"):
        run(shell, ["sleep", "600"], timeout_s=0.5)
    assert time.monotonic() - started_s < PATIENCE_S, "it waited for the command's end"
    assert run(shell, ["echo", "still here"]).out == b"still here\n"


def test_an_unknown_host_key_is_refused(server: SshServer, connector: SshConnector) -> None:
    server.known_hosts.write_text("")
    with pytest.raises(Unreachable) as caught:
        reach(connector, server.variables())
    assert "SHA256:" in caught.value.what
    assert str(server.known_hosts) in caught.value.what
    assert server.logins == 0


def test_a_changed_host_key_is_refused(server: SshServer, connector: SshConnector, tmp_path: Path) -> None:
    other = keygen(tmp_path / "other").with_suffix(".pub").read_text()
    server.known_hosts.write_text(f"[127.0.0.1]:{server.port} {other}")
    with pytest.raises(Unreachable) as caught:
        reach(connector, server.variables())
    assert "has changed" in caught.value.what
    assert f"ssh-keygen -R '[127.0.0.1]:{server.port}'" in caught.value.attempt
    assert server.logins == 0


def test_accept_new_remembers_the_key(server: SshServer, connector: SshConnector) -> None:
    server.known_hosts.write_text("")
    args = server.common_args("-o StrictHostKeyChecking=accept-new")
    reach(connector, server.variables(ansible_ssh_common_args=args))
    kept = server.known_hosts.read_text()
    assert kept.startswith(f"[127.0.0.1]:{server.port} ssh-ed25519 ")
    assert kept.split()[2] in server.host_key.with_suffix(".pub").read_text()
    reach(connector, server.variables(), "again")
    assert server.logins == 2


def test_host_key_checking_off(server: SshServer, connector: SshConnector) -> None:
    server.known_hosts.write_text("")
    reach(connector, server.variables(ansible_host_key_checking=False))
    assert server.logins == 1


def test_a_host_key_alias(server: SshServer, connector: SshConnector) -> None:
    server.known_hosts.write_text(f"rack-1 {server.host_key.with_suffix('.pub').read_text()}")
    args = server.common_args("-o HostKeyAlias=rack-1")
    reach(connector, server.variables(ansible_ssh_common_args=args))
    assert server.logins == 1


def test_nobody_is_let_in_without_a_key(server: SshServer, connector: SshConnector, tmp_path: Path) -> None:
    other = keygen(tmp_path / "other", passphrase="canary")
    with pytest.raises(Unreachable) as caught:
        reach(connector, server.variables(ansible_ssh_private_key_file=str(other)))
    assert "lets nobody in" in caught.value.what
    assert str(other) in caught.value.what


def test_a_key_with_a_passphrase(server: SshServer, connector: SshConnector) -> None:
    subprocess.run(
        ["ssh-keygen", "-q", "-p", "-N", "canary", "-f", str(server.client_key)], check=True, timeout=PATIENCE_S
    )
    reach(connector, server.variables(ansible_private_key_passphrase="canary"))
    assert server.logins == 1


@pytest.fixture
def agent(server: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "agent"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL)
    while not path.exists():
        time.sleep(0.01)
    for number in range(3):
        one = keygen(tmp_path / f"stranger{number}")
        subprocess.run(["ssh-add", "-q", str(one)], env={**os.environ, "SSH_AUTH_SOCK": str(path)}, check=True)
    subprocess.run(
        ["ssh-add", "-q", str(server.client_key)], env={**os.environ, "SSH_AUTH_SOCK": str(path)}, check=True
    )
    server.client_key.unlink()
    yield path
    process.terminate()
    process.wait(PATIENCE_S)


def test_keys_of_the_agent(server: SshServer, agent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", str(agent))
    connector = SshConnector()
    args = server.common_args("-o IdentitiesOnly=yes")
    reach(connector, server.variables(ansible_ssh_common_args=args))
    assert server.logins == 1
    # Only the key whose public part is named was offered, not the strangers that the agent holds as well.
    assert server.log.read_text().count("Failed publickey") == 0
    connector.close()


def test_another_agent_is_refused_by_name(server: SshServer, agent: Path, connector: SshConnector) -> None:
    args = server.common_args(f"-o IdentityAgent={agent}")
    with pytest.raises(UsageError, match="IdentityAgent"):
        reach(connector, server.variables(ansible_ssh_common_args=args))


def test_a_certificate(tmp_path: Path, connector: SshConnector) -> None:
    authority = keygen(tmp_path / "ca")
    server = SshServer(tmp_path / "server", f"TrustedUserCAKeys {authority.with_suffix('.pub')}")
    try:
        (server.folder / "authorized_keys").write_text("")
        sign = ["ssh-keygen", "-q", "-s", str(authority), "-I", "test", "-n", server.user]
        subprocess.run([*sign, str(server.client_key.with_suffix(".pub"))], check=True, timeout=PATIENCE_S)
        certificate = server.folder / "client_key-cert.pub"
        elsewhere = certificate.rename(tmp_path / "my-certificate.pub")
        args = server.common_args(f"-o CertificateFile={elsewhere}")
        reach(connector, server.variables(ansible_ssh_common_args=args))
        elsewhere.rename(certificate)
        reach(connector, server.variables(), "beside the key")
        assert server.logins == 2
    finally:
        server.close()


def test_configuration_files_with_include_and_match(server: SshServer, connector: SshConnector) -> None:
    included = server.folder / "included"
    included.write_text(f"Match host mq?\n  Port {server.port}\n  User {server.user}\n  HostName 127.0.0.1\n")
    config = server.folder / "config"
    config.write_text(
        f"Include {included}\nHost *\n  IdentityFile {server.client_key}\n  UserKnownHostsFile {server.known_hosts}\n"
    )
    reach(connector, {"ansible_ssh_common_args": f"-F {config}", "ansible_become": False})
    assert server.logins == 1


def test_a_jump_host_is_connected_to_once_for_all_hosts_behind_it(
    server: SshServer, tmp_path: Path, connector: SshConnector
) -> None:
    jump = SshServer(tmp_path / "jump")
    try:
        config = server.folder / "config"
        config.write_text(
            f"Host jump\n  HostName 127.0.0.1\n  Port {jump.port}\n  User {jump.user}\n"
            f"  IdentityFile {jump.client_key}\n  UserKnownHostsFile {jump.known_hosts}\n"
        )
        args = f"-F {config} -o ProxyJump=jump -o UserKnownHostsFile={server.known_hosts}"
        variables = server.variables(ansible_ssh_common_args=args)
        names = [f"mq{number}" for number in range(6)]
        outcomes = dict(on_each(names, lambda name: run(reach(connector, variables, name), ["echo", name]).out))
        assert outcomes == {name: f"{name}\n".encode() for name in names}
        assert (jump.logins, server.logins) == (1, 6)
        assert "127.0.0.1" in jump.log.read_text()
    finally:
        jump.close()


def test_a_jump_host_that_was_away_leaves_no_proxy_command_behind(
    server: SshServer, tmp_path: Path, connector: SshConnector
) -> None:
    jump = SshServer(tmp_path / "jump")
    try:
        proxy, config = tmp_path / "proxy.py", server.folder / "config"
        proxy.write_text(PROXY)
        config.write_text(
            f"Host jump\n  HostName 127.0.0.1\n  Port {jump.port}\n  User {jump.user}\n"
            f"  ProxyCommand {sys.executable} {proxy} {jump.port} {tmp_path / 'pids'}\n"
            f"  IdentityFile {jump.client_key}\n  UserKnownHostsFile {jump.known_hosts}\n"
        )
        args = f"-F {config} -o ProxyJump=jump -o UserKnownHostsFile={server.known_hosts}"
        variables = server.variables(ansible_ssh_common_args=args)
        hang_up(jump, reach(connector, variables))
        wait_until(
            lambda: _is_reached(connector, variables), "it is known that the jump host's connection broke as well"
        )
        first, second = (tmp_path / "pids").read_text().split()
        assert not Path("/proc", first).exists()
        assert Path("/proc", second).exists()
    finally:
        jump.close()


def _is_reached(connector: SshConnector, variables: dict[str, object]) -> bool:
    try:
        reach(connector, variables)
    except Unreachable:
        return False
    return True


# Does not end by itself when its connection does.
PROXY = """
import os, socket, sys, threading
def copy(one, other):
    while data := os.read(one, 65536):
        os.write(other, data)
there = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
with open(sys.argv[2], "a") as file:
    file.write(f"{os.getpid()}\\n")
threading.Thread(target=copy, args=(0, there.fileno()), daemon=True).start()
try:
    copy(there.fileno(), 1)
except OSError:
    pass
os.close(1)
os.close(0)
threading.Event().wait()
"""


def test_a_proxy_command(server: SshServer, tmp_path: Path, connector: SshConnector) -> None:
    jump = SshServer(tmp_path / "jump")
    try:
        through = f"ssh -F /dev/null -p {jump.port} -i {jump.client_key} -o UserKnownHostsFile={jump.known_hosts}"
        args = server.common_args(f"-o ProxyCommand='{through} -W %h:%p {jump.user}@127.0.0.1'")
        shell = reach(connector, server.variables(ansible_ssh_common_args=args))
        assert run(shell, ["echo", "through"]).out == b"through\n"
        assert (jump.logins, server.logins) == (1, 1)
    finally:
        jump.close()


def test_a_jump_host_that_cannot_reach_the_host(server: SshServer, connector: SshConnector) -> None:
    config = server.folder / "config"
    config.write_text(
        f"Host jump\n  HostName 127.0.0.1\n  Port {server.port}\n  User {server.user}\n"
        f"  IdentityFile {server.client_key}\n  UserKnownHostsFile {server.known_hosts}\n"
    )
    nobody = free_port()
    args = f"-F {config} -J jump"
    with pytest.raises(Unreachable, match=f"cannot reach 127.0.0.1:{nobody}"):
        reach(connector, server.variables(ansible_ssh_common_args=args, ansible_port=nobody))


@pytest.mark.parametrize("option", ["PKCS11Provider=/nowhere.so", "ProxyUseFdpass=yes", "RevokedHostKeys=/nowhere"])
def test_options_that_cannot_be_honoured_are_named(server: SshServer, connector: SshConnector, option: str) -> None:
    with pytest.raises(UsageError, match=option.split("=")[0]):
        reach(connector, server.variables(ansible_ssh_common_args=server.common_args(f"-o {option}")))
    assert server.logins == 0


def test_an_option_that_ssh_does_not_know(server: SshServer, connector: SshConnector) -> None:
    with pytest.raises(UsageError, match="nosuchoption"):
        reach(connector, server.variables(ansible_ssh_common_args=server.common_args("-o NoSuchOption=1")))


def test_ciphers_that_nobody_has_in_common(server: SshServer, connector: SshConnector) -> None:
    args = server.common_args("-o Ciphers=chacha20-poly1305@openssh.com")
    with pytest.raises(UsageError, match="ciphers"):
        reach(connector, server.variables(ansible_ssh_common_args=args))


def test_twenty_hosts_of_which_some_are_silent_or_gone(server: SshServer, connector: SshConnector) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(8)
        port_of = {f"mq{number}": server.port for number in range(1, 21)}
        port_of |= {"mq7": free_port(), "mq13": silent.getsockname()[1]}
        known = server.host_key.with_suffix(".pub").read_text()
        server.known_hosts.write_text("".join(f"[127.0.0.1]:{port} {known}" for port in set(port_of.values())))

        def ask(name: str) -> bytes:
            patience_s = 3 if name == "mq13" else int(PATIENCE_S)
            variables = server.variables(ansible_port=port_of[name], ansible_ssh_timeout=patience_s)
            return run(reach(connector, variables, name), ["echo", name]).out

        outcomes = dict(on_each(list(port_of), ask))
    assert list(outcomes) == list(port_of)
    failed = {name: one for name, one in outcomes.items() if isinstance(one, CommandError)}
    assert set(failed) == {"mq7", "mq13"}
    assert "connection refused" in failed["mq7"].what
    assert all(isinstance(one, Unreachable) for one in failed.values())


def test_a_host_that_was_away_is_logged_in_to_again(server: SshServer, connector: SshConnector) -> None:
    """A drain is followed for hours, and its host may be booted meanwhile."""
    hang_up(server, reach(connector, server.variables()))
    assert run(reach(connector, server.variables()), ["echo", "again"]).out == b"again\n"
    assert reach(connector, server.variables()) is connector.shell(access_of("mq1", server.variables(), {}))
    assert server.logins == 2


@pytest.mark.parametrize(("is_deaf", "complaint", "dials"), [(False, "lets nobody in", 6), (True, "mq1: ", 24)])
def test_a_host_that_lets_nobody_in_has_its_rest(
    server: SshServer, complaint: str, dials: int, *, is_deaf: bool
) -> None:
    """Who follows it looks each half of a second, for two minutes of which none passes here."""
    now_s = 0.0
    connector = SshConnector(lambda: now_s)
    with Relay(server) as relay:
        variables = server.variables(ansible_port=relay.port)
        access = access_of("mq1", variables, {})
        before = reach(connector, variables)
        (server.folder / "authorized_keys").write_text("")
        relay.is_deaf = is_deaf
        hang_up(server, before)
        for look in range(240):
            now_s = look / 2
            with pytest.raises(Unreachable, match=complaint):
                connector.shell(access)
        assert relay.accepted == 1 + dials
        (server.folder / "authorized_keys").write_text(server.client_key.with_suffix(".pub").read_text())
        relay.is_deaf = False
        now_s += 30
        assert run(reach(connector, variables), ["echo", "again"]).out == b"again\n"
    connector.close()


def test_the_password_of_sudo_is_tried_once_for_a_host(server: SshServer, connector: SshConnector) -> None:
    """Whoever follows a host that breaks off again and again would lock the account otherwise."""
    shell, variables, asked = _shell_with_a_wrong_password(server, connector, "exit 1")
    for _ in range(2):
        with pytest.raises(CommandError, match="it is wrong"):
            run(shell, ["true"])
        hang_up(server, shell)
        shell = connector.shell(access_of("mq1", variables, {}))
    with pytest.raises(CommandError, match="it is wrong"):
        run(shell, ["true"])
    assert asked.read_text() == "asked\n"


def test_a_password_of_which_nothing_was_heard_is_tried_again(server: SshServer, connector: SshConnector) -> None:
    """The connection ends between the password and what sudo says of it."""
    shell, variables, asked = _shell_with_a_wrong_password(server, connector, "kill -9 $PPID; exit 1")
    with pytest.raises(Unreachable, match="nothing was heard of the password"):
        run(shell, ["true"])
    hang_up(server, shell)
    shell = connector.shell(access_of("mq1", variables, {}))
    with pytest.raises(Unreachable, match="nothing was heard of the password"):
        run(shell, ["true"])
    assert asked.read_text() == "asked\n"
    shell.trial.again_at_s = time.monotonic()
    with pytest.raises(Unreachable, match="nothing was heard of the password"):
        run(shell, ["true"])
    assert asked.read_text() == "asked\nasked\n"


def test_a_password_that_was_never_written_was_not_tried(server: SshServer, connector: SshConnector) -> None:
    """The connection ends while sudo is asked whether it needs one."""
    ready = server.folder / "ready"
    shell, variables, asked = _shell_with_a_wrong_password(
        server, connector, "exit 1", f"test -e {ready} || kill -9 $PPID"
    )
    for _ in range(remote.UNHEARD_MAX + 1):
        with pytest.raises(NotBegun):
            run(shell, ["true"])
        hang_up(server, shell)
        shell = connector.shell(access_of("mq1", variables, {}))
    assert not asked.exists()
    ready.touch()
    with pytest.raises(CommandError, match="it is wrong"):
        run(shell, ["true"])
    assert asked.read_text() == "asked\n"


def test_a_password_that_was_right_is_tried_once_over_the_next_connection(
    server: SshServer, connector: SshConnector
) -> None:
    """The host may be another system by then. Only a try tries once: for a command sudo tries it three times."""
    shell, variables, asked = _shell_with_a_wrong_password(
        server, connector, f"test ! -e {server.folder / 'new'}; exit"
    )
    assert run(shell, ["true"]).code == 1  # it takes the password, and then runs nothing
    (server.folder / "new").touch()
    hang_up(server, shell)
    for _ in range(3):
        with pytest.raises(CommandError, match="it is wrong"):
            run(connector.shell(access_of("mq1", variables, {})), ["true"])
    assert asked.read_text() == "asked\nasked\n"


def _shell_with_a_wrong_password(
    server: SshServer, connector: SshConnector, end: str, before: str = ":"
) -> tuple[Shell, dict[str, object], Path]:
    """A shell, its variables, and the file in which a sudo that takes no password writes each that it was given."""
    asked, sudo = server.folder / "asked", server.folder / "sudo"
    sudo.write_text(
        '#!/bin/sh\ncase "$*" in *" -S "*) cat > /dev/null\n'
        f"echo asked >> {asked}; echo it is wrong >&2; {end};; *) {before};; esac\nexit 1\n"
    )
    sudo.chmod(0o755)
    variables = server.variables(
        ansible_become=True,
        ansible_become_user="nobody",
        ansible_become_exe=str(sudo),
        ansible_become_password="canary",
    )
    return connector.shell(access_of("mq1", variables, {})), variables, asked


def test_a_host_that_never_let_us_in_is_asked_at_once(server: SshServer, connector: SshConnector) -> None:
    """Somebody mends its key meanwhile."""
    (server.folder / "authorized_keys").write_text("")
    with pytest.raises(Unreachable, match="lets nobody in"):
        reach(connector, server.variables())
    (server.folder / "authorized_keys").write_text(server.client_key.with_suffix(".pub").read_text())
    assert run(reach(connector, server.variables()), ["echo", "in"]).out == b"in\n"


def hang_up(server: SshServer, shell: Shell) -> None:
    """The server ends the connection of a shell, which notices that."""
    server.hang_up()
    wait_until(lambda: "the connection is gone" in _why_not(shell), "it is known that the connection broke")


def _why_not(shell: Shell) -> str:
    try:
        run(shell, ["true"])
    except Unreachable as fault:
        return fault.what
    return ""


@pytest.mark.one_day_in_three(2)
def test_a_host_that_falls_silent_in_the_middle(server: SshServer, connector: SshConnector) -> None:
    """A relay between us and the server stops passing bytes on: the wait ends all the same."""
    with Relay(server) as relay:
        shell = reach(connector, server.variables(ansible_port=relay.port, ansible_ssh_timeout=20))
        assert run(shell, ["echo", "x"]).out == b"x\n"
        stream = remote.open_stream(shell, ["cat"])
        relay.hold()
        with pytest.raises(Unreachable):
            run(shell, ["echo", "y"], timeout_s=1)
        assert run(reach(connector, server.variables(ansible_port=relay.port)), ["echo", "z"]).out == b"z\n"
        relay.let_go()
        stream.settimeout(PATIENCE_S)
        stream.sendall(b"not closed\n")
        assert stream.recv(100) == b"not closed\n"
        stream.close()


def test_ctrl_c_does_not_wait_for_silent_hosts(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(8)
        (tmp_path / "inventory.yml").write_text(
            "brokers:\n  hosts:\n    mq1:\n      ansible_host: 127.0.0.1\n"
            f"      ansible_port: {silent.getsockname()[1]}\n      ansible_ssh_timeout: 600\n"
            "  vars:\n    mq_cluster_name: main\n"
        )
        command = [sys.executable, "-m", "mqctl.main", "status", "--timeout", "600"]
        with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE) as process:
            silent.settimeout(PATIENCE_S)
            accepted, _ = silent.accept()
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == 130
            assert process.stderr is not None
            assert b"Traceback" not in process.stderr.read()
        accepted.close()
