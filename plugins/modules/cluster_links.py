#!/usr/bin/python
# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Links of the broker nodes of a host to the others of their cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_links
short_description: Note the links of broker nodes, and wait until they do their work again
description:
  - Without O(wanted) it says which links to other nodes of the cluster stand, in both directions.
  - With it, it waits until all of these stand again and a canary, a message that no client sees, has crossed each that
    leads outwards. It fails where that does not come about.
  - A node that does not run, or has no cluster connection, has no links.
author:
  - mqops maintainers (@mqops)
options:
  instances:
    description:
      - Names of the instances.
    type: list
    elements: str
    required: true
  wanted:
    description:
      - What an earlier run returned as RV(links).
    type: list
    elements: dict
  wait_s:
    description:
      - Seconds to wait for the links of each instance.
    type: int
    default: 60
  executable:
    description:
      - The program C(mqbroker) that asks the nodes.
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
- name: Note the links that stand
  mqops.cluster.cluster_links:
    instances: [default]
  register: before

- name: Wait until they do their work again
  mqops.cluster.cluster_links:
    instances: [default]
    wanted: "{{ before.links }}"
"""

RETURN = r"""
links:
  description: The links that stand, or those that were wanted.
  type: list
  elements: dict
  returned: always
  contains:
    instance:
      description: Name of the instance.
      type: str
    direction:
      description: V(out) or V(in).
      type: str
    connection:
      description: Name of the cluster connection, empty for links inwards.
      type: str
    node_id:
      description: Id of the other node.
      type: str
    node:
      description: Name of the other node, where it is known.
      type: str
canaries:
  description: What became of the canary of each link outwards, by instance.
  type: dict
  returned: with O(wanted)
"""

from functools import partial

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.mqops.cluster.plugins.module_utils import links, node
from ansible_collections.mqops.cluster.plugins.module_utils.command import EXECUTABLE, CommandFault

REMEDY = (
    "look at it with mqctl topology and mqctl events, and run the rollout again when they stand: it does not wait for "
    "them any more; hosts that had not had their turn are as they were"
)


def noted(module):
    """The links of all instances that stand."""
    found = []
    for name in module.params["instances"]:
        rows = links.standing(node.ask(name, "topology", module.params["executable"]))
        found += [dict(row, instance=name) for row in rows]
    return found


def waited(module):
    """The faults of all instances, and their canaries."""
    complaints, canaries = [], {}
    for name in module.params["instances"]:
        wanted = [row for row in module.params["wanted"] if row["instance"] == name]
        if not wanted:
            continue
        found, canary = links.wait(
            partial(node.ask, name, executable=module.params["executable"]), wanted, module.params["wait_s"]
        )
        canaries[name] = (canary or {}).get("links", [])
        complaints += [f"{name}: {each}" for each in found]
    return complaints, canaries


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "instances": {"type": "list", "elements": "str", "required": True},
            "wanted": {"type": "list", "elements": "dict"},
            "wait_s": {"type": "int", "default": 60},
            "executable": {"type": "path", "default": EXECUTABLE},
        },
        supports_check_mode=True,
    )
    try:
        if module.params["wanted"] is None:
            module.exit_json(changed=False, links=noted(module))
        complaints, canaries = waited(module)
    except CommandFault as fault:
        module.fail_json(msg=str(fault))
    result = {"links": module.params["wanted"], "canaries": canaries}
    if complaints:
        wait_s = module.params["wait_s"]
        module.fail_json(msg=f"not whole after {wait_s} s: {'; '.join(complaints)}; {REMEDY}", **result)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
