"""An inventory less one host, or less one of its instances: only what is of that goes, so comments and layout of the
rest survive. Pure.

What cannot be cut out safely (names that a range makes, programs that print an inventory, text that would mean
something else afterwards) is told, and done by a person.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import yaml


class Loader(yaml.SafeLoader):
    """Takes the tags of Ansible (`!vault`, `!unsafe`) for what stands behind them."""


def _untagged(loader: Loader, _: str, node: Any) -> Any:
    if isinstance(node, yaml.ScalarNode):
        return loader.construct_scalar(node)
    make = loader.construct_sequence if isinstance(node, yaml.SequenceNode) else loader.construct_mapping
    return make(node, deep=True)


Loader.add_multi_constructor("!", _untagged)


class ByHand(Exception):
    """This file is a person's to change; the text says why."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """What a file of the inventory holds before and after."""

    name: str
    before: str
    after: str

    @property
    def diff(self) -> str:
        """The lines that differ, as `diff -u` writes them."""
        return "".join(
            difflib.unified_diff(
                self.before.splitlines(keepends=True), self.after.splitlines(keepends=True),
                f"{self.name} (before)", f"{self.name} (after)",
            )
        )  # fmt: skip


def without_host(text: str, host: str, name: str) -> str:
    """The text of an inventory less a host; the same where it does not name it. Raises ByHand."""
    if text.startswith("#!"):
        raise ByHand(f"{name} is a program")
    if made := _made_by_range(text, host):
        raise ByHand(f"{made} in {name} makes {host} as well")
    is_yaml = name.endswith((".yml", ".yaml", ".json"))
    if not is_yaml:
        return _without_in_ini(text, host)
    return _cut(
        text,
        lambda root: _spans(text, root, host),
        lambda tree: _less(tree, host),
        f"{name} without {host} would mean something else as well",
    )


def without_instance(text: str, host: str, instance: str, name: str, *, is_own: bool = False) -> str:
    """The text of an inventory in which a host has an instance less; the same where it gives the host no instances.
    `is_own`: of a file with variables of this host alone. Raises ByHand."""
    if text.startswith("#!"):
        raise ByHand(f"{name} is a program")
    if not is_own and INSTANCES in text and (made := _made_by_range(text, host)):
        raise ByHand(f"{made} in {name} makes {host} as well")
    if not is_own and not name.endswith((".yml", ".yaml", ".json")):
        if re.search(rf"(?m)^\s*{re.escape(host)}\b.*\b{INSTANCES}\b", text):
            raise ByHand(f"{name} has them on the line of {host}")
        return text
    where = host if not is_own else ""
    return _cut(
        text,
        lambda root: _spans_of_instance(text, root, where, instance),
        lambda tree: _less_instance(tree, where, instance),
        f"{name} without {instance} would mean something else as well",
    )


def _cut(
    text: str, spans_of: Callable[[Any], Iterable[tuple[int, int]]], less: Callable[[Any], Any], otherwise: str
) -> str:
    """YAML without the spans that are found in its nodes, if it says exactly what is left then. Raises ByHand, which
    says `otherwise`."""
    try:
        changed = text
        for start, end in sorted(spans_of(yaml.compose(text, Loader)), reverse=True):
            changed = changed[:start] + changed[end:]
        is_right = yaml.load(changed, Loader) == less(yaml.load(text, Loader))
    except yaml.YAMLError:
        is_right = False
    if not is_right:
        raise ByHand(otherwise)
    return changed


# As in `mq[01:30:2]`: both ends are meant as well, and a step may follow.
RANGE: Final = re.compile(r"\[(\d*):(\d+)(?::(\d+))?\]|\[([A-Za-z]):([A-Za-z])(?::(\d+))?\]")
NAME: Final = r"[\w.-]*"
INSTANCES: Final = "mq_instances"


def _made_by_range(text: str, host: str) -> str:
    """The first name with ranges in it that is the host's as well, as it stands there; empty: none is."""
    for match in re.finditer(rf"(?<![\w.-]){NAME}(?:\[\w*:\w+(?::\d+)?\]{NAME})+", text):
        name = match.group()
        ranges = list(RANGE.finditer(name))
        parts = "(.+?)".join(re.escape(part) for part in _between(name, ranges))
        whole = re.fullmatch(parts, host)
        if ranges and whole and all(map(_is_in, ranges, whole.groups())):
            return name
    return ""


def _between(name: str, ranges: list[re.Match[str]]) -> list[str]:
    ends = [0, *(one.end() for one in ranges)]
    starts = [*(one.start() for one in ranges), len(name)]
    return [name[end:start] for end, start in zip(ends, starts, strict=True)]


def _is_in(made: re.Match[str], text: str) -> bool:
    """Whether a range makes this text. Numbers have as many digits as that at its beginning."""
    first, last, step, letter, last_letter, letter_step = made.groups()
    if letter:
        is_between = len(text) == 1 and letter <= text <= last_letter
        return is_between and (ord(text) - ord(letter)) % max(int(letter_step or 1), 1) == 0
    first = first or "0"
    if not (text.isascii() and text.isdigit()) or text != str(int(text)).zfill(len(first)):
        return False
    return int(first) <= int(text) <= int(last) and (int(text) - int(first)) % max(int(step or 1), 1) == 0


def _less(tree: Any, host: str) -> Any:
    """What is to be said afterwards. A group that has no hosts left says nothing of hosts."""
    if not isinstance(tree, dict):
        return tree
    rest = {key: _less(value, host) for key, value in tree.items()}
    hosts = rest.get("hosts")
    if isinstance(hosts, dict) and host in hosts:
        rest["hosts"] = {key: value for key, value in hosts.items() if key != host} or None
    return rest


def _spans(text: str, node: Any, host: str) -> list[tuple[int, int]]:
    """From where to where the host stands below keys `hosts`."""
    if not isinstance(node, yaml.MappingNode):
        return []
    spans: list[tuple[int, int]] = []
    for key, value in node.value:
        if key.value == "hosts" and isinstance(value, yaml.MappingNode):
            spans += [_span(text, value, number) for number, (own, _) in enumerate(value.value) if own.value == host]
        spans += _spans(text, value, host)
    return spans


def _span(text: str, hosts: Any, number: int) -> tuple[int, int]:
    if hosts.flow_style:
        raise ByHand(f"{hosts.value[number][0].value} stands in a list within braces")
    key, value = hosts.value[number]
    line = text.find("\n", max(_last(value), key.end_mark.index))
    return key.start_mark.index - key.start_mark.column, len(text) if line < 0 else line + 1


def _last(node: Any) -> int:
    """Where the text of a node ends: that of a block reaches to the next key, over comments that are not its own."""
    if isinstance(node, yaml.MappingNode) and node.value and not node.flow_style:
        return max(_last(value) for _, value in node.value)
    if isinstance(node, yaml.SequenceNode) and node.value and not node.flow_style:
        return max(_last(value) for value in node.value)
    # An empty value ends where the next thing begins.
    empty = isinstance(node, yaml.ScalarNode) and node.start_mark.index == node.end_mark.index
    return 0 if empty else int(node.end_mark.index) - 1


def _less_instance(tree: Any, host: str, instance: str) -> Any:
    """What is to be said afterwards. Without a host these are variables of it."""
    if not isinstance(tree, dict):
        return tree
    if not host:
        rows = tree.get(INSTANCES)
        return {**tree, INSTANCES: _others(rows, instance)} if isinstance(rows, list) else tree
    rest = {key: _less_instance(value, host, instance) for key, value in tree.items()}
    hosts = rest.get("hosts")
    if isinstance(hosts, dict) and host in hosts:
        rest["hosts"] = {**hosts, host: _less_instance(hosts[host], "", instance)}
    return rest


def _others(rows: list[Any], instance: str) -> list[Any]:
    return [row for row in rows if not (isinstance(row, dict) and row.get("name") == instance)]


def _spans_of_instance(text: str, node: Any, host: str, instance: str) -> set[tuple[int, int]]:
    """From where to where the instance stands below the host. Without a host these are variables of it."""
    if not isinstance(node, yaml.MappingNode):
        return set()
    spans: set[tuple[int, int]] = set()
    for key, value in node.value:
        if host:
            own = value.value if key.value == "hosts" and isinstance(value, yaml.MappingNode) else ()
            for each in (variables for name, variables in own if name.value == host):
                spans |= _spans_of_instance(text, each, "", instance)
            spans |= _spans_of_instance(text, value, host, instance)
        elif key.value == INSTANCES and isinstance(value, yaml.SequenceNode):
            spans |= _spans_in_list(text, value, instance)
    return spans


def _spans_in_list(text: str, rows: Any, instance: str) -> set[tuple[int, int]]:
    """Of a list within brackets with the comma; else whole lines. The last one is not taken out: a host has one."""
    named = [
        isinstance(row, yaml.MappingNode)
        and any(key.value == "name" and value.value == instance for key, value in row.value)
        for row in rows.value
    ]
    if True not in named:
        return set()
    if all(named):
        raise ByHand(f"no other instance than {instance} stands there")
    number = named.index(True)
    row = rows.value[number]
    if rows.flow_style and number + 1 < len(named):
        return {(row.start_mark.index, rows.value[number + 1].start_mark.index)}
    if rows.flow_style:
        return {(rows.value[number - 1].end_mark.index, row.end_mark.index)}
    line = text.find("\n", max(_last(row), row.start_mark.index))
    return {(text.rfind("\n", 0, row.start_mark.index) + 1, len(text) if line < 0 else line + 1)}


def _without_in_ini(text: str, host: str) -> str:
    own = re.compile(rf"\s*{re.escape(host)}(:\d+)?(\s|$)")  # with the port of its SSH, too
    section, kept = "", []
    for line in text.splitlines(keepends=True):
        heading = re.match(r"\[([^\]]+)\]", line)
        section = heading.group(1) if heading else section
        is_host = not section.endswith((":vars", ":children")) and own.match(line)
        if not is_host:
            kept.append(line)
    return "".join(kept)
