"""Every conversation goes as it is written. `python -m tests.golden --rewrite` writes down what comes of it now."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.conversation import DASHES, play

FILES = sorted((Path(__file__).parent / "conversations").glob("*.txt"))


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_conversation(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert play(text) == text


def test_there_are_conversations_and_they_say_something() -> None:
    assert len(FILES) >= 12
    for file in FILES:
        blocks = file.read_text(encoding="utf-8").strip().split("\n\n")
        assert sum(DASHES in block for block in blocks) >= 2
        assert blocks[0].startswith("#"), "a conversation says first what it shows"
