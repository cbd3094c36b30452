"""`playbooks/vars/roles.json`: the variables of `roles.yml`, as playbooks take them.

Ansible reads the file of a play anew for each task on each host, which takes it 6 ms of YAML and 1.5 of JSON. So the
source is the one that people read, with its comments, and playbooks take the other one.
"""

from __future__ import annotations

import json
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
SOURCE = "playbooks/vars/roles.yml"
MADE = "playbooks/vars/roles.json"


def files() -> dict[str, str]:
    """The one file."""
    variables = yaml.safe_load((ROOT / SOURCE).read_text(encoding="utf-8"))
    return {MADE: json.dumps(variables, indent=2, ensure_ascii=False) + "\n"}
