"""docs/OPERATIONS.md says of every alert, every finding of preflight and every check of health what to do."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from mqbroker.admin.health import CHECKS

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs/OPERATIONS.md").read_text(encoding="utf-8")
FINDINGS = ROOT / "plugins/module_utils/findings.py"
PREFLIGHT = ROOT / "roles/preflight/vars/main.yml"
ROW = re.compile(r"^\| `([a-z-]+)` \|", re.MULTILINE)


def section(title: str) -> str:
    """The text below a heading, up to the next one of the same depth."""
    return TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_every_alert_has_a_section_and_every_section_an_alert() -> None:
    rules = yaml.safe_load((ROOT / "docs/alerts/mqbroker.rules.yml").read_text(encoding="utf-8"))
    names = [rule["alert"] for group in rules["groups"] for rule in group["rules"]]
    told = section("What each alert means")
    assert re.findall(r"^### (\w+)$", told, re.MULTILINE) == names
    for part in re.split(r"^### \w+$", told, flags=re.MULTILINE)[1:]:
        assert len(part.split()) >= 20, "what it means, and what to do"


def test_every_finding_of_preflight_is_explained() -> None:
    named = set(re.findall(r"_(?:error|warning)\(\s*\"([a-z]+)\"", FINDINGS.read_text(encoding="utf-8")))
    # What only shows when hosts are compared with each other is found in the role.
    named |= set(re.findall(r"'check': '([a-z]+)'", PREFLIGHT.read_text(encoding="utf-8")))
    assert set(ROW.findall(section("What preflight says"))) == named | {"multicast"}


def test_every_check_of_health_is_explained() -> None:
    assert set(ROW.findall(section("Is everything well?"))) == {*CHECKS, "running", "links"}
