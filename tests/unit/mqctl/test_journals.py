"""What a host says of a journal, and hosts that say too little: each is a shell line in the place of `mqbroker`."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from mqctl.brokers import journals
from mqctl.errors import CommandError
from mqctl.nodes import Node
from mqctl.output import data_console
from mqctl.ssh.local import LocalShell, LocalStream
from mqctl.ssh.variables import Access, access_of
from mqctl.world import World

NODE = Node("mq1", "default", access_of("mq1", {"ansible_become": False}, {}))


class ScriptShell(LocalShell):
    """Runs its line whatever it is told to run."""

    def __init__(self, access: Access, line: str) -> None:
        super().__init__(access.name, access.become)
        self.line = line

    def open_plain(self, command: str, prefix: bytes) -> LocalStream:
        return super().open_plain(self.line, prefix)


class ScriptedHost:
    """A connector to it."""

    def __init__(self, line: str) -> None:
        self.line = line

    def shell(self, access: Access) -> ScriptShell:
        return ScriptShell(access, self.line)

    def close(self) -> None:
        """Nothing is held."""


def world(line: str) -> World:
    out = io.StringIO()
    consoles = (data_console(out, has_colour=False), data_console(io.StringIO(), has_colour=False))
    return World({}, Path("/"), io.BytesIO(), out, *consoles, connector=ScriptedHost(line))


def test_an_export_comes_in_chunks_and_ends_with_its_last_row() -> None:
    line = """head -c 300000 /dev/zero; echo; echo '{"type": "end", "queues": 1, "messages": 7}'"""
    chunks: list[bytes] = []
    size, last = journals.take(world(line), NODE, chunks.append)
    assert last == {"type": "end", "queues": 1, "messages": 7}
    assert (len(b"".join(chunks)), max(map(len, chunks)) <= journals.CHUNK_BYTES) == (size, True)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("""echo '{"type": "queue"}'""", "mq1: the export ended before its last row"),
        ("""echo '{"type": "end"}'; echo 'mqbroker: a disk failed' >&2; exit 1""", "mq1: a disk failed"),
        ("""echo '{"type": "end"}'; kill -9 $$""", "mq1: the connection broke, or the command was killed"),
        ("echo 'sh: no mqbroker' >&2; exit 127", "mq1: sh: no mqbroker"),
    ],
)
def test_an_export_that_is_not_whole_is_an_error(line: str, why: str) -> None:
    with pytest.raises(CommandError) as caught:
        journals.take(world(line), NODE, lambda chunk: None)
    assert caught.value.what == why


def test_an_import_hands_over_all_and_takes_the_hosts_word() -> None:
    line = """printf '{"messages": %s}' $(wc -c)"""
    assert journals.bring(world(line), NODE, [b"x" * 100_000] * 9) == {"messages": 900_000}
    with pytest.raises(CommandError, match="mq1: exit code 0"):
        journals.bring(world("cat > /dev/null"), NODE, [b"x"])


def test_an_import_that_is_refused_before_all_is_read_says_why() -> None:
    sent = 0

    def chunks() -> Iterator[bytes]:
        nonlocal sent
        while True:
            sent += 1
            yield b"x" * journals.CHUNK_BYTES

    with pytest.raises(CommandError, match="mq1: it has a journal already"):
        journals.bring(world("echo 'mqbroker: it has a journal already' >&2; exit 1"), NODE, chunks())
    assert sent < 1000


def test_what_is_damaged_is_an_answer_and_nothing_else_is() -> None:
    assert journals.ask(world("""echo '{"good": false}'; exit 1"""), NODE, "check") == {"good": False}
    for line in ("echo '{}'", "echo nonsense", "echo '[]'"):
        with pytest.raises(CommandError, match="mqbroker journal info printed no JSON"):
            journals.ask(world(line), NODE, "info")
    with pytest.raises(CommandError, match="said more than"):
        journals.ask(world("cat /dev/zero"), NODE, "info")


def test_a_lock_that_is_held_names_the_command_that_helps() -> None:
    line = f"echo 'mqbroker: /d/lock: another process {journals.IN_USE}; stop it' >&2; exit 1"
    with pytest.raises(CommandError) as caught:
        journals.ask(world(line), NODE, "info")
    assert caught.value.what.startswith("mq1: its broker runs: /d/lock: ")
    assert caught.value.attempt == "on mq1: systemctl stop mqbroker@default.service"
