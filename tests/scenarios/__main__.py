"""`python -m tests.scenarios [--rewrite] [NAME…]`: as `python -m tests.golden`, with several nodes."""

from __future__ import annotations

from pathlib import Path

from tests.golden.__main__ import main
from tests.scenarios.cluster import play

if __name__ == "__main__":
    raise SystemExit(main(play, Path(__file__).parent / "conversations", "python -m tests.scenarios"))
