"""`python -m tests.golden [--rewrite] [NAME…]`: play conversations; with --rewrite, write down what came of them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from tests.golden.conversation import play as play_conversation


def main(play: Callable[[str], str], folder: Path, prog: str) -> int:
    """1 where a conversation in the folder went otherwise than it is written."""
    parser = argparse.ArgumentParser(prog=prog)
    parser.add_argument("--rewrite", action="store_true")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    files = [folder / f"{name}.txt" for name in arguments.names] or sorted(folder.glob("*.txt"))
    differing = 0
    for file in files:
        before = file.read_text(encoding="utf-8")
        after = play(before)
        if after != before:
            differing += 1
            sys.stdout.write(after)
            if arguments.rewrite:
                file.write_text(after, encoding="utf-8")
    return int(differing > 0 and not arguments.rewrite)


if __name__ == "__main__":
    raise SystemExit(main(play_conversation, Path(__file__).parent / "conversations", "python -m tests.golden"))
