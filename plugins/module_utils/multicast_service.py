# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Keeps a multicast probe running between tasks: a process of its own that ends when told to, or when its life is over.

Ansible reaches hosts a few at a time, and all must probe while any of them listens. The process is talked to over a
Unix socket in the abstract namespace, named by the run, so nothing is left on a disk; only the user that started it
(and root) is answered.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from typing import Any

from ansible_collections.mqops.cluster.plugins.module_utils.multicast_probe import LineStream, MulticastProbe

CREDENTIALS = struct.Struct("3i")  # of SO_PEERCRED: process, user, group
READY_S = 30.0
ANSWER_S = 30.0


class ProbeFault(Exception):
    """The probe cannot be started or does not answer; the text says why."""


def name_of(run: str) -> str:
    """The socket of a run."""
    return f"\0mqops-multicast-probe-{run}"


def start(request: dict[str, Any]) -> dict[str, Any]:
    """Start the process; what it says once it probes. Raises ProbeFault."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(name_of(request["run"]))
        listener.listen(4)
    except OSError as error:
        listener.close()
        raise ProbeFault(f"the probe of this run cannot be started: {error.strerror}") from None
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _detached(request, listener, writing)
    os.close(writing)
    listener.close()
    os.waitpid(child, 0)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        said = pipe.read()
    if not said:
        raise ProbeFault("the probe ended before it was ready")
    ready: dict[str, Any] = json.loads(said)
    if "fault" in ready:
        raise ProbeFault(ready["fault"])
    return ready


def _detached(request: dict[str, Any], listener: socket.socket, writing: int) -> None:
    """In a child: become a process that nobody waits for, and serve. Never returns."""
    try:
        os.setsid()
        if os.fork() != 0:
            os._exit(0)
        _close_others({listener.fileno(), writing})
        probe = MulticastProbe(request)
        try:
            ready = probe.open()
        except Exception as fault:  # the edge of a process: whoever waits is told
            ready = {"fault": f"{type(fault).__name__}: {fault}"}
        os.write(writing, json.dumps(ready).encode())
        os.close(writing)
        if "fault" not in ready:
            _serve(probe, listener)
    finally:
        os._exit(0)


def _close_others(kept: set[int]) -> None:
    """Ansible waits until its ends of our files are closed."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    for name in os.listdir("/proc/self/fd"):
        number = int(name)
        if number > 2 and number not in kept:
            try:
                os.close(number)
            except OSError:
                continue  # the folder that was just listed
    os.chdir("/")


def _serve(probe: MulticastProbe, listener: socket.socket) -> None:
    talks: dict[int, socket.socket] = {}

    def accept() -> None:
        talk = listener.accept()[0]
        _pid, uid, _gid = CREDENTIALS.unpack(talk.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))
        if uid not in (0, os.geteuid()):
            talk.close()
            return
        number = talk.fileno()
        talks[number] = talk
        stream = LineStream(number, number)
        probe.watch(number, lambda: obey(number, stream))

    def obey(number: int, stream: LineStream) -> None:
        try:
            goes_on = probe.obey(stream)
        except (OSError, ValueError):
            goes_on = False
        if not goes_on:
            probe.forget(number)
            talks.pop(number).close()

    probe.watch(listener.fileno(), accept)
    probe.serve()


def report(run: str, peers: dict[str, Any], window_s: float) -> dict[str, Any]:
    """What the probe of a run heard; it goes on probing. Raises ProbeFault."""
    with _talk(run, window_s + ANSWER_S) as talk:
        try:
            talk.sendall(json.dumps({"report": {"peers": peers, "window_s": window_s}}).encode() + b"\n")
            line = _line(talk)
        except OSError as error:
            raise ProbeFault(f"the probe does not answer: {error}") from None
    if not line:
        raise ProbeFault("the probe ended before it reported")
    found: dict[str, Any] = json.loads(line.decode())["report"]
    return found


def stop(run: str) -> bool:
    """End the probe of a run; whether there was one."""
    try:
        with _talk(run, ANSWER_S) as talk:
            talk.sendall(b'{"end": true}\n')
    except (ProbeFault, OSError):
        return False
    return True


def _talk(run: str, time_s: float) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.settimeout(time_s)
    try:
        made.connect(name_of(run))
    except OSError as error:
        made.close()
        raise ProbeFault(f"no probe of this run is here: {error.strerror}") from None
    return made


def _line(talk: socket.socket) -> bytes:
    """One line, or nothing where the other end is closed."""
    data = b""
    while not data.endswith(b"\n"):
        chunk = talk.recv(1 << 16)
        if not chunk:
            return b""
        data += chunk
    return data
