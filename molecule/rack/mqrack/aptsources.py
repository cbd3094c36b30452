"""Owns where packages come from: the mirrors and proxies that this machine's apt already uses.

Invariant: no address of a mirror is written in the rack. `RACK_APT_SOURCES` names a sources file for machines
whose own apt knows no Debian (or that have no apt); without either, mmdebstrap takes its built-in default.
Source: sources.list(5), both of its formats.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from mqrack.command import attempt
from mqrack.errors import RackError

_APT = Path("/etc/apt")


def for_suite(suite: str) -> dict[str, str]:
    """This machine's own entries for the suite, by a file name whose ending tells their format."""
    override = os.environ.get("RACK_APT_SOURCES")
    if override:
        return {f"given{Path(override).suffix or '.list'}": _read_override(Path(override))}
    lists = [_APT / "sources.list", *sorted((_APT / "sources.list.d").glob("*.list"))]
    lines = [line for path in lists if path.is_file() for line in one_line_entries(path.read_text(), suite)]
    modern = sorted((_APT / "sources.list.d").glob("*.sources"))
    stanzas = [text for path in modern for text in deb822_entries(path.read_text(), suite)]
    found = {"debian.list": "\n".join(lines), "debian.sources": "\n\n".join(stanzas)}
    return {name: f"{text}\n" for name, text in found.items() if text}


def _read_override(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise RackError(f"RACK_APT_SOURCES={path} cannot be read: {error.strerror}. Name a sources file.") from None


def one_line_entries(text: str, suite: str) -> list[str]:
    entry = re.compile(r"deb\s+(?:\[[^]]*\]\s+)?\S+\s+(\S+)\s+(.*)")
    found = []
    for line in text.splitlines():
        match = entry.fullmatch(line.split("#")[0].strip())
        if match and _is_debian([match[1]], match[2].split(), suite):
            found.append(match[0])
    return found


def deb822_entries(text: str, suite: str) -> list[str]:
    found = []
    for stanza in re.split(r"\n\s*\n", text):
        lines = [line for line in stanza.splitlines() if line.strip() and not line.startswith("#")]
        fields = {key.strip().lower(): value for key, _, value in (line.partition(":") for line in lines)}
        usable = "deb" in fields.get("types", "").split() and fields.get("enabled", "yes").strip() != "no"
        if usable and _is_debian(fields.get("suites", "").split(), fields.get("components", "").split(), suite):
            found.append("\n".join(lines))
    return found


def _is_debian(suites: Iterable[str], components: Iterable[str], suite: str) -> bool:
    # Other publishers use Debian's code names too, but not its component `main` together with them.
    return "main" in components and any(name in (suite, f"{suite}-updates", f"{suite}-security") for name in suites)


def transport_options() -> list[str]:
    """Proxy and certificate settings of this machine's apt, as mmdebstrap takes them."""
    if shutil.which("apt-config") is None:
        return []
    dump = attempt(["apt-config", "dump", "Acquire"]).stdout
    wanted = re.compile(r'Acquire::https?(::.*)? ".+";')
    return [line for line in dump.splitlines() if wanted.fullmatch(line)]
