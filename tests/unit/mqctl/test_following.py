"""What several say at once, in the order in which it comes, and the file of a log that grows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from mqctl.dev.log import TAIL_BYTES_MAX, followed
from mqctl.errors import CommandError
from mqctl.fanout import HOSTS_AT_ONCE, WAITING_MAX, as_it_comes


def test_each_is_heard_and_an_error_hides_nobody() -> None:
    def said(item: str) -> Iterator[str]:
        if item == "shut":
            raise CommandError("shut: nobody is there")
        return iter([f"{item} {number}" for number in range(3)])

    found = list(as_it_comes(["a", "shut", "b"], said))
    assert [value for item, value in found if item == "a"] == ["a 0", "a 1", "a 2"]
    assert [value for item, value in found if item == "b"] == ["b 0", "b 1", "b 2"]
    (error,) = [value for _, value in found if isinstance(value, CommandError)]
    assert error.what == "shut: nobody is there"


@pytest.mark.slow
def test_more_than_may_make_contact_at_once_are_heard_while_all_go_on() -> None:
    names = [str(number) for number in range(HOSTS_AT_ONCE + 5)]

    def said(item: str) -> Iterator[str]:
        while True:
            yield item

    missing = set(names)
    for item, _ in as_it_comes(names, said):
        missing.discard(item)
        if not missing:
            break


def test_who_says_more_than_is_taken_has_to_wait() -> None:
    made = 0

    def said(item: str) -> Iterator[int]:
        nonlocal made
        for number in range(5 * WAITING_MAX):
            made += 1
            yield number

    for taken, (_, number) in enumerate(as_it_comes(["one"], said)):
        assert number == taken
        # The one in the hand of its thread, and the one in ours.
        assert made <= taken + WAITING_MAX + 2


def test_a_file_is_followed_also_when_it_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("one\ntwo\n2026-01-01T00:00:00.000Z INFO thr")
    lines = followed(path, 1)
    assert next(lines)["message"] == "two"
    with path.open("ab") as file:
        file.write("ee ä".encode()[:-1])
    with path.open("ab") as file:
        file.write("ä".encode()[-1:] + b"\nfour\n")
    assert next(lines) == {"time": "2026-01-01T00:00:00.000Z", "level": "info", "message": "three ä"}
    assert next(lines)["message"] == "four"
    path.write_text("new\n")
    assert next(lines)["message"] == "new"
    with path.open("ab") as file:
        file.write(b"x" * (TAIL_BYTES_MAX + 1))
    assert len(next(lines)["message"]) == TAIL_BYTES_MAX + 1, "a line that does not end is not kept for ever"
