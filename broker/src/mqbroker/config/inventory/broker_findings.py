"""What the broker itself would say of the file that the role writes from an inventory.

The checks of single variables name them better; this finds what they do not look for, before a host is touched. What
is said of a value that only Ansible knows does not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from pydantic import ValidationError

from mqbroker.base.errors import ConfigFault
from mqbroker.config.declarations.clustering import doubts
from mqbroker.config.declarations.variables import WRITTEN_AS, HostVariables
from mqbroker.config.file import load
from mqbroker.config.inventory.tables import render_toml
from mqbroker.config.names import REPEATED_TABLES, yaml_name
from mqbroker.config.slices import BrokerOptions

ADDRESS: Final = "192.0.2.1"  # stands for what the card has (RFC 5737)


def broker_faults(variables: Mapping[str, Any], opaque: str) -> list[ConfigFault]:
    """Of one host whose variables are sound each by itself. `opaque`: the mark of what only Ansible knows."""
    faults = (fault for each in _files(variables, opaque) if isinstance(each, list) for fault in each)
    return _by_variable(faults, opaque)


def broker_doubts(variables: Mapping[str, Any], opaque: str) -> list[ConfigFault]:
    """What is allowed and hardly meant, of one host. `opaque`: as above."""
    of_files = (doubt for each in _files(variables, opaque) if not isinstance(each, list) for doubt in doubts(each))
    return _by_variable(of_files, opaque)


def _files(variables: Mapping[str, Any], opaque: str) -> Iterator[BrokerOptions | list[ConfigFault]]:
    """What the broker makes of the file of each instance."""
    try:
        known = HostVariables.model_validate({name: value for name, value in variables.items() if value != opaque})
    except ValidationError:
        return  # it needs what only Ansible knows
    address = ADDRESS if known.mq_cluster_interface else None
    for instance in known.mq_instances:
        yield load.parse(render_toml(known, instance, "host", address))


def _by_variable(faults: Iterable[ConfigFault], opaque: str) -> list[ConfigFault]:
    """Each once, with the variable that it is about."""
    told: dict[tuple[str, str], ConfigFault] = {}
    for fault in faults:
        if opaque not in fault.why:
            path = _variable(fault.path)
            told.setdefault((path, fault.why), ConfigFault(path, fault.why))
    return list(told.values())


def _variable(path: str) -> str:
    """The variable of which the role makes this place in the file."""
    table, _, option = path.partition(".")
    name = yaml_name(table)
    if name in REPEATED_TABLES or name == "grouping_handler":
        return f"mq_{yaml_name(path)}"
    return WRITTEN_AS.get((name, yaml_name(option)), f"mq_broker_options.{yaml_name(path)}")
