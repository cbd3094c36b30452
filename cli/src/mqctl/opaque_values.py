"""Values of an inventory that only Ansible can read: templates, and texts that are encrypted one by one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

USED_HERE = ("ansible_", "mq_")


def is_open(value: Any) -> bool:
    """Whether a value has a template or an encrypted text in it, however deep."""
    if isinstance(value, str):
        return "{{" in value or "{%" in value
    if isinstance(value, Mapping):
        return "__ansible_vault" in value or any(is_open(one) for one in value.values())
    return isinstance(value, list) and any(is_open(one) for one in value)


def open_names(variables: Mapping[str, Any]) -> list[str]:
    """Variables of a host that mqctl uses and cannot read as they are."""
    return [name for name, value in variables.items() if name.startswith(USED_HERE) and is_open(value)]
