"""A node in memory behind an admin socket, in the folder of a dev cluster: for commands of mqctl without processes.

    with AdminStage(tmp_path) as node:
        node.stage.admin("queue-create", name="orders")
        execute(["queue", "list", "--dev", "--directory", str(tmp_path)])

The node is the real one below `io/`. A thread answers one request at a time, for as many sessions as come.
"""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.stage import Stage

ANSWER_MS = 200


class AdminStage:
    """One node; `name` is what --host takes."""

    def __init__(self, folder: Path, name: str = "dev-1", stage: Stage | None = None) -> None:
        self.stage = stage or Stage()
        self._lock = threading.Lock()
        self._sessions = 100
        place = folder / name
        place.mkdir(parents=True)
        (place / "broker.toml").touch()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(str(place / "admin.sock"))
        self._socket.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> AdminStage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        self._sessions += 1
        session = self._sessions
        with peer, peer.makefile("rb") as lines:
            for line in lines:
                row = json.loads(line)
                peer.sendall(json.dumps({"id": row["id"]} | self._answer(session, row)).encode() + b"\n")

    def _answer(self, session: int, row: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            request = self.stage.ask(row["op"], session, **row["args"])
            if request not in self.stage.replies:
                self.stage.wait(ANSWER_MS)
            reply = self.stage.replies[request]
        return {"error": reply.error} if reply.error else {"result": reply.result}
