"""An SSH server that lets everybody in, and answers no more from a point on that the test chooses.

An sshd cannot be stopped at such a point, so this one is paramiko's.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path
from typing import Any

import paramiko

from tests.support.patience import PATIENCE_S

LOGIN, COMMAND = "login", "command"
LASTING = "cat"  # the one command that does not end
BUFFER_BYTES = 4096  # of what comes and is not read, how much the kernel takes


class MuteServer:
    """On a port of its own. `mute_at`: what it does not answer, LOGIN or COMMAND; "": nothing, all commands succeed.

    `silence_s`: for how long it does not.
    """

    def __init__(self, known_hosts: Path) -> None:
        self.mute_at = ""
        self.silence_s = PATIENCE_S
        self.keys_offered = 0
        self.done = threading.Event()
        self.is_muted = threading.Event()  # somebody waits for it in vain
        self._key = paramiko.ECDSAKey.generate()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        self.port = int(self._listener.getsockname()[1])
        known_hosts.write_text(f"[127.0.0.1]:{self.port} {self._key.get_name()} {self._key.get_base64()}\n")

    def __enter__(self) -> MuteServer:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                transport = paramiko.Transport(self._listener.accept()[0])
                transport.add_server_key(self._key)
                transport.start_server(event=threading.Event(), server=_Session(self))

    def pass_by(self, point: str) -> None:
        """Returns at once, or after the silence, or with the end of the test."""
        if self.mute_at == point:
            self.is_muted.set()
            self.done.wait(self.silence_s)


class _Session(paramiko.ServerInterface):
    def __init__(self, server: MuteServer) -> None:
        self._server = server

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        self._server.keys_offered += 1
        self._server.pass_by(LOGIN)
        return paramiko.common.AUTH_SUCCESSFUL

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.common.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: Any, command: bytes) -> bool:
        self._server.pass_by(COMMAND)
        if command.decode() != LASTING:
            threading.Thread(target=_end, args=(channel,), daemon=True).start()
        return True


def _end(channel: paramiko.Channel) -> None:
    with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
        channel.send_exit_status(0)
        channel.close()
