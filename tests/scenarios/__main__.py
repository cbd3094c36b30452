"""`python -m tests.scenarios [--rewrite] [NAME…]`: play conversations; with --rewrite, write down what came of them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.scenarios.cluster import play

FOLDER = Path(__file__).parent / "conversations"


def main() -> int:
    """1 where a conversation went otherwise than it is written."""
    parser = argparse.ArgumentParser(prog="python -m tests.scenarios")
    parser.add_argument("--rewrite", action="store_true")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    files = [FOLDER / f"{name}.txt" for name in arguments.names] or sorted(FOLDER.glob("*.txt"))
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
    raise SystemExit(main())
