"""Starts and stops the brokers of `mqctl dev` with the broker's own commands: identity, users, run."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from mqctl.admin import AdminClient, SocketStream
from mqctl.dev.state import USER, DevNode, running_pid, start_ticks
from mqctl.errors import CommandError
from mqctl.world import World

START_TIME_S_MAX = 30.0
STOP_TIME_S_MAX = 15.0
POLL_S = 0.05


def broker_program() -> str:
    """`mqbroker`: the one beside this Python, else the one on the PATH."""
    beside = Path(sys.executable).parent / "mqbroker"
    program = str(beside) if beside.exists() else shutil.which("mqbroker")
    if program is None:
        raise CommandError("mqbroker is not installed beside mqctl", "pip install mqbroker")
    return program


def options_text(one: DevNode, port: int) -> str:
    """The broker.toml of a node: only what differs from the defaults. A JSON string is a TOML string."""
    return (
        f"[node]\nname = {json.dumps(one.name)}\n"
        f"data-directory = {json.dumps(str(one.data))}\n"
        f"admin-socket = {json.dumps(str(one.socket))}\n\n"
        f'[[listeners]]\nname = "clients"\nlocal-bind-address = "127.0.0.1"\nport = {port}\n'
    )


def password(place: Path) -> str:
    """The password of the dev user, made on first use."""
    path = place / "password"
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists():
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(18) + "\n")
    return path.read_text().strip()


def prepare(one: DevNode, port: int, secret: str) -> None:
    """Everything that a node needs before its first start. What is there stays."""
    one.path.mkdir(mode=0o700, parents=True, exist_ok=True)
    one.data.mkdir(mode=0o700, exist_ok=True)
    one.options_file.write_text(options_text(one, port))
    _broker(["config", "check", str(one.options_file)])
    if not (one.data / "identity.json").exists():
        _broker(["identity", "init", "--config", str(one.options_file)])
    _broker(["users", "set", USER, "--stdin", "--config", str(one.options_file)], secret)


def _broker(arguments: Sequence[str], stdin: str = "") -> None:
    done = subprocess.run(
        [broker_program(), *arguments], input=stdin, capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise CommandError(f"mqbroker {arguments[0]} {arguments[1]} failed: {said[0]}", "mqctl dev status")


def start(one: DevNode) -> None:
    """Start the node's process; it outlives this command."""
    with one.log.open("ab") as log:
        child = subprocess.Popen(
            [broker_program(), "run", "--config", str(one.options_file)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=one.path,
        )
    ticks = start_ticks(child.pid)
    one.process_file.write_text(json.dumps({"pid": child.pid, "start_ticks": ticks}) + "\n")


def wait_ready(world: World, one: DevNode) -> None:
    """Until the broker answers on its admin socket."""
    deadline = world.monotonic_s() + START_TIME_S_MAX
    while world.monotonic_s() < deadline:
        if running_pid(one) is None:
            raise CommandError(f"{one.name} ended at once: {last_words(one)}", f"less {one.log}")
        if answers(one):
            return
        world.sleep_s(POLL_S)
    raise CommandError(f"{one.name} does not answer within {START_TIME_S_MAX:g} s", f"less {one.log}")


def answers(one: DevNode) -> bool:
    """Whether the broker answers a request."""
    try:
        with AdminClient(one.name, SocketStream(str(one.socket)), 5) as session:
            session.call("status")
    except CommandError:
        return False
    return True


def last_words(one: DevNode) -> str:
    """The last line of the node's log."""
    try:
        lines = one.log.read_text(errors="replace").strip().splitlines()
    except OSError:
        lines = []
    return lines[-1] if lines else "it said nothing"


def stop(world: World, one: DevNode) -> bool:
    """Stop gracefully, then hard; whether there was anything to stop."""
    if (pid := running_pid(one)) is None:
        return False
    os.kill(pid, signal.SIGTERM)
    deadline = world.monotonic_s() + STOP_TIME_S_MAX
    while running_pid(one) is not None and world.monotonic_s() < deadline:
        world.sleep_s(POLL_S)
    if running_pid(one) is not None:
        os.kill(pid, signal.SIGKILL)
        while running_pid(one) is not None:
            world.sleep_s(POLL_S)
    one.process_file.unlink(missing_ok=True)
    return True


def port_is_free(port: int) -> bool:
    """Whether a listener could be bound to this port of loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
