"""Whether the modules that one message costs are compiled here. This one is always compiled with them."""

from __future__ import annotations

# A compiled module is told the file it was loaded from.
IS_NATIVE = not __file__.endswith((".py", ".pyc"))
NATIVE = "yes" if IS_NATIVE else "no"
