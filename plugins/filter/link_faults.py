# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Why hosts that were asked for links do not let others be restarted."""

from __future__ import annotations

DOCUMENTATION = r"""
name: link_faults
short_description: Says of hosts that were asked for links what is wrong
version_added: 0.1.0
description:
  - Takes results of a loop over M(mqops.cluster.ask_member) that asked for M(mqops.cluster.cluster_links).
positional: is_lost_told
options:
  _input:
    description: The results, each with the name of its host as C(item), or as C(host) of it.
    type: list
    elements: dict
    required: true
  is_lost_told:
    description: Whether something is wrong where a host was not reached.
    type: bool
    default: true
author:
  - mqops maintainers (@mqops)
"""

EXAMPLES = r"""
- name: All links stand
  ansible.builtin.assert:
    that: asked.results | mqops.cluster.link_faults == []
"""

RETURN = r"""
_value:
  description: A sentence for each host where something is wrong.
  type: list
  elements: str
"""

LOST = "lost before anybody knew whether the links stand that it waits for"


def link_faults(results, is_lost_told=True):
    """A sentence for each host where something is wrong."""
    told = [(_host(one), _fault(one, is_lost_told)) for one in results or [] if "answer" in one]
    return [f"{host}: {fault}" for host, fault in told if fault]


def _host(result):
    item = result["item"]
    return item if isinstance(item, str) else item["host"]


def _fault(result, is_lost_told):
    if not result.get("reached", True):
        return f"{LOST}: {result['why']}" if is_lost_told else ""
    answer = result["answer"]
    return (answer.get("msg") or "it gave no reason") if answer.get("failed") else ""


class FilterModule:
    """Names the filter."""

    def filters(self):
        """Name -> function."""
        return {"link_faults": link_faults}
