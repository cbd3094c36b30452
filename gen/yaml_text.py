"""YAML in the form that the collection's linters ask for: document start, indented sequences, lines that break."""

from __future__ import annotations

from typing import Any

import yaml

WIDTH = 110


class _Dumper(yaml.SafeDumper):
    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:
        return True


def dump(value: Any) -> str:
    """One document."""
    return "---\n" + yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=WIDTH, allow_unicode=True)
