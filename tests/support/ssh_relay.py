"""A relay before an sshd of a test, which may fall silent without a word, as where a host loses its power."""

from __future__ import annotations

import contextlib
import socket
import threading

from support.ssh_server import SshServer


class Relay:
    """Passes on what comes on a port of its own, to the server and back. It ends with the test."""

    def __init__(self, server: SshServer, buffer_bytes: int = 0) -> None:
        """`buffer_bytes`: of what comes, how much the kernel takes before the relay does; 0: as much as it likes."""
        self.accepted = 0
        self.is_deaf = False  # whoever comes is sent away
        self._server_port = server.port
        self._held = self._gate = threading.Event()
        self._gate.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        if buffer_bytes:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        self.port = int(self._listener.getsockname()[1])
        with server.known_hosts.open("a") as file:
            file.write(f"[127.0.0.1]:{self.port} {server.host_key.with_suffix('.pub').read_text()}")

    def __enter__(self) -> Relay:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.let_go()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def hold(self) -> None:
        """Pass on no more of connections that are there, which stay. Later ones are served."""
        self._gate.clear()
        self._held, self._gate = self._gate, threading.Event()
        self._gate.set()

    def let_go(self) -> None:
        """Pass on what was held."""
        self._held.set()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                here, _ = self._listener.accept()
                self.accepted += 1
                if self.is_deaf:
                    here.close()
                    continue
                there = socket.create_connection(("127.0.0.1", self._server_port))
                for ends in ((here, there), (there, here)):
                    threading.Thread(target=self._copy, args=(*ends, self._gate), daemon=True).start()

    @staticmethod
    def _copy(one: socket.socket, other: socket.socket, gate: threading.Event) -> None:
        with contextlib.suppress(OSError):
            try:
                while data := one.recv(65536):
                    gate.wait()
                    other.sendall(data)
            finally:
                other.shutdown(socket.SHUT_WR)
