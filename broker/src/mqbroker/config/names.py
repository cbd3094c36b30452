"""Names of options and tables, as far as whoever compares or tells of them has to know: without any model.

The models need a library that is as large as all else that a broker imports (app/forked_work.py), so what serves
messages knows this module, `slices.py` and `compare.py`, and none that declares options.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

# Tables that may be repeated, each with the option that tells one from another.
REPEATED_TABLES: Final = {
    "listeners": "name", "address_settings": "match", "security_settings": "match",
    "addresses": "name", "diverts": "name",
    "connectors": "name", "broadcast_groups": "name", "discovery_groups": "name",
    "cluster_connections": "name",
    "connection_routers": "name",
}  # fmt: skip


@lru_cache(maxsize=1024)
def toml_name(name: str) -> str:
    """The one mapping between a name in Python or YAML and the same name in TOML."""
    return name.replace("_", "-")


def yaml_name(name: str) -> str:
    """The way back of `toml_name`."""
    return name.replace("-", "_")
