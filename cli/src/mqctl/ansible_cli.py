"""Asks Ansible for its inventory and its settings, in JSON, through its own programs. Nothing else of it is touched.

Source: `ansible-inventory --list` and `ansible-config dump`; the Python interface behind them is private to Ansible.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from mqctl.errors import UsageError

ANSWER_TIME_S_MAX = 120
# Lines are not wrapped, so that what is named stands in one.
PLAIN = {"ANSIBLE_FORCE_COLOR": "false", "NO_COLOR": "1", "COLUMNS": "10000"}
# Where Ansible looks for a file of settings, beside the one that ANSIBLE_CONFIG names; and a variable that is set for
# its collections, and that no plugin has an option of.
SETTINGS_FILES = ("ansible.cfg", "~/.ansible.cfg", "/etc/ansible/ansible.cfg")
OF_COLLECTIONS = "ANSIBLE_COLLECTIONS_PATH"
TWICE = re.compile(r"Found duplicate mapping key '(.*)'\.\s+Origin: (.*)")


def program(name: str) -> str:
    """A program of Ansible: the one beside this Python, else the one on the PATH."""
    beside = Path(sys.executable).parent / name
    path = str(beside) if beside.exists() else shutil.which(name)
    if path is None:
        raise UsageError(f"{name} is not installed", "pip install ansible-core")
    return path


def read_all(
    sources: Sequence[Path], vault_arguments: Sequence[str], environ: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The inventory as `--list` gives it, and the options of the ssh plugin that are not at their defaults."""
    named = [part for source in sources for part in ("-i", str(source))]
    inventory = [program("ansible-inventory"), *named, *vault_arguments, "--list"]
    if not may_have_settings(environ):
        return _ask(inventory, environ), {}
    settings = [program("ansible-config"), "dump", "--only-changed", "-t", "connection", "ssh", "--format", "json"]
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(_ask, inventory, environ)
        second = pool.submit(_ask, settings, environ)
        return first.result(), _ssh_options(second.result())


def may_have_settings(environ: Mapping[str, str]) -> bool:
    """Whether anything can be set that is not at its default; where nothing is, a second Ansible need not start."""
    home = environ.get("HOME") or os.path.expanduser("~")
    files = (f"{home}/{name[2:]}" if name.startswith("~/") else name for name in SETTINGS_FILES)
    said = (name for name in environ if name.startswith("ANSIBLE_") and name != OF_COLLECTIONS)
    return any(said) or any(os.path.lexists(file) for file in files)


def _ask(command: list[str], environ: Mapping[str, str]) -> Any:
    environment = {**environ, **PLAIN}
    try:
        done = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            timeout=ANSWER_TIME_S_MAX,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise UsageError(f"{os.path.basename(command[0])} did not end within {ANSWER_TIME_S_MAX} s") from None
    failed = done.returncode != 0 or "Unable to parse" in done.stderr or "Failed to parse" in done.stderr
    if failed:
        raise UsageError(f"Ansible cannot read the inventory: {complaint(done.stderr)}", " ".join(shown(command)))
    # Of a host, or a list of users, that stands there twice only the last would be known: the others would go.
    if twice := TWICE.findall(done.stderr):
        raise UsageError(
            f"of what stands twice Ansible takes the last alone: {', '.join(f'{key} ({at})' for key, at in twice)}",
            "leave one of each in the inventory",
        )
    try:
        return json.loads(done.stdout or "[]")
    except ValueError:
        raise UsageError(f"{os.path.basename(command[0])} answered no JSON", " ".join(shown(command))) from None


def complaint(text: str) -> str:
    """What Ansible complains about, in one line: its first warnings and errors, without its continuation lines."""
    lines = [one.strip() for one in text.splitlines() if one.strip()]
    useful = [one for one in lines if one.startswith(("[WARNING]", "[ERROR]", "ERROR"))] or lines
    return " / ".join(useful[:3]) or "it says nothing"


def shown(command: Sequence[str]) -> list[str]:
    """The command as the user would type it."""
    return [os.path.basename(command[0]), *command[1:]]


def _ssh_options(dump: Any) -> dict[str, Any]:
    """`[{"ssh": [{"name": …, "value": …}]}]` into name -> value."""
    for part in dump if isinstance(dump, list) else []:
        if isinstance(part, dict) and isinstance(part.get("ssh"), list):
            return {one["name"]: one.get("value") for one in part["ssh"]}
    return {}
