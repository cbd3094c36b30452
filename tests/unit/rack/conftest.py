"""The rack is a tool of its own and no installed package: its folder has to be on the path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "molecule" / "rack"))
