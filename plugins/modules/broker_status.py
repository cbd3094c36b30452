#!/usr/bin/python
# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""State of the broker nodes of a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: broker_status
short_description: Show how broker nodes are and what they need
description:
  - Reads the state of the unit of each instance, asks the node itself through its admin socket, and compares what it
    runs with against what it should run with.
  - Changes nothing.
author:
  - mqops maintainers (@mqops)
options:
  instances:
    description:
      - The instances.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description:
          - Name of the instance.
        type: str
        required: true
      options:
        description:
          - Wanted text of its C(broker.toml). That of the host where it is left out.
        type: str
      certificates:
        description:
          - Wanted SHA-256 of each file of certificates, by its name below C(/etc/mq/INSTANCE/tls). Those of the host
            where it is left out.
        type: dict
  release:
    description:
      - Name of the wanted release. The current one where it is left out.
    type: str
  unit:
    description:
      - Wanted text of the unit. That of the host where it is left out.
    type: str
  wait_s:
    description:
      - Seconds to wait for answers; the module fails where none comes. With V(0) it asks once and never fails.
    type: int
    default: 0
  executable:
    description:
      - The program C(mqbroker) that compares options and asks the node.
    type: path
    default: /opt/mq/current/bin/mqbroker
attributes:
  check_mode:
    description: Changes nothing anyway.
    support: full
  diff_mode:
    description: Changes nothing.
    support: none
"""

EXAMPLES = r"""
- name: Wait until the broker answers
  mqops.cluster.broker_status:
    instances:
      - name: default
    wait_s: 60
"""

RETURN = r"""
nodes:
  description: One entry for each instance.
  type: list
  elements: dict
  returned: always
  contains:
    instance:
      description: Name of the instance.
      type: str
    active:
      description: ActiveState of the unit.
      type: str
    enabled:
      description: Whether it starts at boot.
      type: bool
    is_read:
      description: Whether systemd has read the files of the unit as they are now.
      type: bool
    needs:
      description: What makes it run with what it should run with, V(none), V(reload), V(restart) or V(start).
      type: str
    why:
      description: Every difference.
      type: list
      elements: str
    status:
      description: What the node says of itself, null where it does not answer.
      type: dict
is_due:
  description: Whether any instance differs from what is wanted.
  type: bool
  returned: always
is_noticed:
  description: Whether making it so reloads or restarts a broker that runs.
  type: bool
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.mqops.cluster.plugins.module_utils import loaded, node
from ansible_collections.mqops.cluster.plugins.module_utils.command import EXECUTABLE, CommandFault, chosen


def look(module, executable, instance):
    """One instance."""
    name = instance["name"]
    wanted = loaded.Wanted(
        module.params["release"], module.params["unit"], instance["options"], instance["certificates"]
    )
    unit = node.unit_of(name)
    found = loaded.due(name, wanted, unit, executable)
    status = ask(module, name, unit, executable)
    if module.params["wait_s"]:
        unit = node.unit_of(name)
    return {
        "instance": name,
        "active": unit.get("ActiveState", ""),
        "enabled": unit.get("UnitFileState") == "enabled",
        "is_read": unit.get("NeedDaemonReload") != "yes",
        "needs": found.needs,
        "why": found.why,
        "status": status,
    }


def ask(module, name, unit, executable):
    """The answer of the node, None where it does not run and nobody waits for it."""
    wait_s = module.params["wait_s"]
    if wait_s == 0 and unit.get("ActiveState") not in loaded.ALIVE:
        return None
    return node.wait(name, wait_s, executable)


def complaint(module, nodes):
    """A sentence for each node that did not answer although it was waited for."""
    if module.params["wait_s"] == 0:
        return ""
    # Who has ended is not waited for.
    silence = f" and did not answer within {module.params['wait_s']} s"
    return "; ".join(
        f"{node.unit_name(one['instance'])} is {one['active']}"
        f"{'' if one['active'] in node.ENDED else silence}, its log ends with: {node.last_words(one['instance'])}"
        for one in nodes
        if one["status"] is None
    )


def main():
    """Run the module."""
    instance = {
        "name": {"type": "str", "required": True},
        "options": {"type": "str"},
        "certificates": {"type": "dict"},
    }
    module = AnsibleModule(
        argument_spec={
            "instances": {"type": "list", "elements": "dict", "required": True, "options": instance},
            "release": {"type": "str"},
            "unit": {"type": "str"},
            "wait_s": {"type": "int", "default": 0},
            "executable": {"type": "path", "default": EXECUTABLE},
        },
        supports_check_mode=True,
    )
    executable = chosen(module.params["executable"], module.check_mode)
    try:
        nodes = [look(module, executable, one) for one in module.params["instances"]]
    except CommandFault as fault:
        module.fail_json(msg=str(fault))
    result = {
        "nodes": nodes,
        "is_due": any(one["why"] for one in nodes),
        "is_noticed": any(one["needs"] in ("reload", "restart") for one in nodes),
    }
    if complaint(module, nodes):
        module.fail_json(msg=complaint(module, nodes), **result)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
