"""The role's rules of nftables: rendered as Ansible does, and what they let in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from ansible.parsing.dataloader import DataLoader  # type: ignore[import-untyped]
from ansible.template import Templar, trust_as_template  # type: ignore[import-untyped]

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = ROOT / "roles/firewall/templates/ruleset.nft.j2"
DEFAULTS = yaml.safe_load((ROOT / "roles/firewall/defaults/main.yml").read_text(encoding="utf-8"))
MAPPED = yaml.safe_load((ROOT / "playbooks/vars/roles.yml").read_text(encoding="utf-8"))["firewall_groups"]
UDP = {"name": "lan", "group_address": "231.7.7.7", "group_port": 9876}
GOSSIP = {"name": "talk", "discovery": "gossip", "local_bind_port": 7800, "peers": ["mq1:7800"]}
SHARED = {"name": "share", "discovery": "file", "directory": "/srv/nodes"}
NAMES = {"name": "names", "discovery": "dns", "names": ["mq.example.org:5673"]}


def templated(text: str, values: dict[str, Any]) -> Any:
    return Templar(loader=DataLoader(), variables=values).template(trust_as_template(text))


def rules(broadcast: list[dict[str, Any]], discovery: list[dict[str, Any]], **changes: Any) -> list[str]:
    """The lines for groups, of a host whose card has 198.51.100.11."""
    variables = {"mq_broadcast_groups": broadcast, "mq_discovery_groups": discovery}
    values = {
        **DEFAULTS, "ansible_managed": "Ansible managed", "firewall_groups": templated(MAPPED, variables),
        "__firewall_ssh": [], "__firewall_nodes": ["198.51.100.12"], "__firewall_bind": {"address": "198.51.100.11"},
        **changes,
    }  # fmt: skip
    made = templated(TEMPLATE.read_text(encoding="utf-8"), values)
    _, _, after = made.partition('comment "default: cluster"\n')
    return [line.strip() for line in after.partition("  }\n")[0].splitlines() if "#" not in line]


def test_multicast_is_let_in_from_members_and_igmp_from_all() -> None:
    assert rules([UDP], [UDP]) == [
        "ip daddr 231.7.7.7 udp dport 9876 jump cluster", "meta l4proto 2 accept",
    ]  # fmt: skip


def test_ports_of_gossip_are_let_in_from_members() -> None:
    line = 'ip daddr 198.51.100.11 tcp dport {} jump cluster comment "{}: gossip talk"'
    assert rules([GOSSIP], [GOSSIP]) == [line.format(7800, "default")]
    assert rules([GOSSIP], [UDP])[-1] == line.format(7800, "default")
    assert rules([{**GOSSIP, "local_bind_address": "127.0.0.1"}], []) == []


def test_files_and_names_need_nothing() -> None:
    assert rules([SHARED], [SHARED, NAMES]) == []


def test_each_instance_has_a_port_of_its_own() -> None:
    instances = [{"name": "default"}, {"name": "b", "port_offset": 100}]
    found = [line for line in rules([GOSSIP], [GOSSIP], firewall_instances=instances) if "gossip" in line]
    assert [line.split("dport ")[1].split()[0] for line in found] == ["7800", "7900"]
