"""A real sshd on loopback as a process of a test, with keys of its own: `SshServer(tmp_path / "a")`."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from tests.support.broker_process import free_port
from tests.support.patience import PATIENCE_S

SSHD = "/usr/sbin/sshd"
START_TIME_S = PATIENCE_S


def keygen(path: Path, *arguments: str, passphrase: str = "") -> Path:
    """A new key pair at `path`."""
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-f", str(path), *arguments]
    subprocess.run(command, check=True, timeout=PATIENCE_S)
    return path


class SshServer:
    """Accepts the user of the test with `client_key`, and whatever `options` add to sshd_config."""

    def __init__(self, folder: Path, *options: str) -> None:
        if not os.access(SSHD, os.X_OK):
            raise AssertionError(f"{SSHD} is missing: apt install openssh-server")
        folder.mkdir(parents=True)
        self.folder = folder
        self.user = getpass.getuser()
        self.port = free_port()
        self.host_key = keygen(folder / "host_key")
        self.client_key = keygen(folder / "client_key")
        self.known_hosts = folder / "known_hosts"
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {self.host_key.with_suffix('.pub').read_text()}")
        self.log = folder / "log"
        (folder / "authorized_keys").write_text(self.client_key.with_suffix(".pub").read_text())
        (folder / "sshd_config").write_text(self._config(options))
        if os.geteuid() == 0:
            os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
        self._process = subprocess.Popen(
            [SSHD, "-D", "-f", str(folder / "sshd_config"), "-E", str(self.log)], stdin=subprocess.DEVNULL
        )
        self._wait()

    def _config(self, options: tuple[str, ...]) -> str:
        lines = [
            *options,
            f"Port {self.port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {self.host_key}",
            f"PidFile {self.folder / 'pid'}",
            f"AuthorizedKeysFile {self.folder / 'authorized_keys'}",
            "PermitRootLogin yes",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "StrictModes no",
            "MaxStartups 100",
            "UsePAM no",
            "LogLevel VERBOSE",
        ]
        return "\n".join(lines) + "\n"

    def _wait(self) -> None:
        deadline_s = time.monotonic() + START_TIME_S
        while time.monotonic() < deadline_s:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            if self._process.poll() is not None:
                break
            time.sleep(0.02)
        raise AssertionError(f"sshd does not start: {self.log.read_text() if self.log.exists() else ''}")

    @property
    def logins(self) -> int:
        """How often somebody logged in."""
        return self.log.read_text().count("Accepted publickey for ")

    def common_args(self, *more: str) -> str:
        """Options of ssh that trust this server and nothing of the user's own configuration."""
        return " ".join(["-F /dev/null", f"-o UserKnownHostsFile={self.known_hosts}", *more])

    def variables(self, **more: object) -> dict[str, object]:
        """Host variables that lead here."""
        return {
            "ansible_host": "127.0.0.1",
            "ansible_port": self.port,
            "ansible_user": self.user,
            "ansible_ssh_private_key_file": str(self.client_key),
            "ansible_ssh_common_args": self.common_args(),
            "ansible_become": False,
            "ansible_ssh_timeout": int(PATIENCE_S),
            **more,
        }

    def hang_up(self) -> None:
        """End all that have logged in, as where their host was away; who comes from now on is let in."""
        for status in Path("/proc").glob("[0-9]*/status"):
            with contextlib.suppress(OSError):
                if f"\nPPid:\t{self._process.pid}\n" in status.read_text():
                    os.kill(int(status.parent.name), signal.SIGKILL)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE_S)
        shutil.rmtree(self.folder, ignore_errors=True)
