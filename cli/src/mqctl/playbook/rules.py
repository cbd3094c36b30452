"""The packet filter of a host as the role `firewall` writes it: its own templates, rendered as Ansible does.

Only hosts that have one need this, since what it imports takes as long as the rest of a short command.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from mqctl.plan.places import Rules

MEMBER = re.compile("member ([0-9a-f:.]+)")
SOURCES = ("roles/firewall/defaults/main.yml", "playbooks/vars/roles.yml", "roles/firewall/vars/main.yml")
TEMPLATES = "roles/firewall/templates"
ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What is not in the inventory. `members`: addresses of those that could be asked; `loaded`: rules in force."""

    address: str
    origin: Sequence[str]
    members: Sequence[str]
    are_all: bool
    loaded: str


def rules_of(collection: Path, host: str, variables: Mapping[str, Any], facts: HostFacts) -> Rules:
    """The packet filter rules that the role would write on a host, by file."""
    from ansible.parsing.dataloader import DataLoader  # type: ignore[import-untyped]
    from ansible.template import Templar, trust_as_template  # type: ignore[import-untyped]

    def trusted(value: Any) -> Any:
        if isinstance(value, list):
            return [trusted(one) for one in value]
        if isinstance(value, dict):
            return {name: trusted(one) for name, one in value.items()}
        return trust_as_template(value) if isinstance(value, str) else value

    own: dict[str, Any] = {}
    for source in SOURCES:
        own |= trusted(yaml.safe_load((collection / source).read_text(encoding="utf-8")))
    kept = [] if facts.are_all else MEMBER.findall(facts.loaded)
    values = {
        **own, **variables, "inventory_hostname": host, "__firewall_bind": {"address": facts.address},
        "__firewall_ssh": list(facts.origin), "__firewall_nodes": sorted({*facts.members, *kept}),
    }  # fmt: skip
    with ONE_AT_A_TIME:
        templar = Templar(loader=DataLoader(), variables=values)
        texts = [
            str(templar.template(trust_as_template((collection / TEMPLATES / name).read_text(encoding="utf-8"))))
            for name in ("ruleset.nft.j2", "mq-firewall.service.j2")
        ]
    return Rules(*texts)
