#!/usr/bin/python
# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Links of the broker nodes of a host to the others of their cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_links
short_description: Note the links of broker nodes, and wait until they do their work again
description:
  - It says which links to other nodes of the cluster stand, in both directions, or waits until those that stood stand
    again and a canary, a message that no client sees, has crossed each that leads outwards. It fails where that does
    not come about.
  - What has to stand again is noted on the host until it does, so that whoever comes after a run that failed or was
    killed knows it as well.
  - A node that does not run, or has no cluster connection, has no links.
author:
  - mqops maintainers (@mqops)
options:
  state:
    description:
      - V(standing) says which links stand.
      - V(noted) says it, and notes on the host that they have to stand again, before its brokers are restarted.
      - V(awaited) says which have not stood since.
      - V(whole) waits until they do, and takes them out of the note.
      - V(settled) asks once, takes out of the note what stands, says what does not, and never fails.
      - V(forgotten) waits for none of them any more, and says which these were.
    type: str
    choices: [standing, noted, awaited, whole, settled, forgotten]
    default: standing
  instances:
    description:
      - Names of the instances. Links of others that are noted are not waited for, and stay noted, since the broker of
        an instance that nobody names any more runs on.
    type: list
    elements: str
    required: true
  wanted:
    description:
      - With O(state=whole), the links to wait for; by default those that are noted.
    type: list
    elements: dict
  nodes:
    description:
      - Names of the nodes of the cluster. A link to any other one that neither the node knows in the end, nor another
        member that it has a link to, is not missed. By default all are.
    type: list
    elements: str
  stood:
    description:
      - Links that stood just before, so that none of their nodes has left, whoever O(nodes) are.
    type: list
    elements: dict
    default: []
  strict:
    description:
      - Whether a note that cannot be read or written is a failure, with O(state=noted) and O(state=whole).
    type: bool
    default: true
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
    description: Notes nothing, and forgets nothing.
    support: full
  diff_mode:
    description: There is nothing to show.
    support: none
"""

EXAMPLES = r"""
- name: Note the links that stand
  mqops.cluster.cluster_links:
    state: noted
    instances: [default]

- name: Wait until they do their work again
  mqops.cluster.cluster_links:
    state: whole
    instances: [default]
"""

RETURN = r"""
links:
  description: The links that are meant, those that were noted before among them with O(state=noted).
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
standing:
  description: Those of them that stand now.
  type: list
  elements: dict
  returned: with O(state=noted)
unnoted:
  description: Why the note could not be read or written, empty where it could.
  type: str
  returned: with O(state=noted)
missing:
  description: The links in words that do not stand, and what could not be found out.
  type: list
  elements: str
  returned: with O(state=settled)
given_up:
  description: The links in words.
  type: list
  elements: str
  returned: with O(state=forgotten)
canaries:
  description: What became of the canary of each link outwards, by instance.
  type: dict
  returned: with O(state=whole)
"""

from functools import partial

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.mqops.cluster.plugins.module_utils import awaited_links, links, node
from ansible_collections.mqops.cluster.plugins.module_utils.command import EXECUTABLE, CommandFault
from ansible_collections.mqops.cluster.plugins.module_utils.files import FileFault

REMEDY = (
    "look at it with mqctl topology and mqctl events; no other broker is restarted before these links stand, in this "
    "run or a later one: mend it and run it again, or restart this host alone with other options (--limit), several "
    "that have broken each other's links, or need the same change as the others, together (--limit with --batch), or "
    "mqctl rollback; a node that is gone for good takes mqctl scale-down, or mqctl cluster forget and to be out of the "
    "inventory, and another member that has a link to this one: in doubt it is missed; --force (-e rollout_force=true) "
    "goes on without them"
)


def standing(module):
    """The links of all instances that stand."""
    found = []
    for name in module.params["instances"]:
        rows = links.standing(node.ask(name, "topology", module.params["executable"]))
        found += [dict(row, instance=name) for row in rows]
    return found


def noted(module):
    """All that have to stand again, and those of them that stand now."""
    found = standing(module)
    every, unnoted = found, ""
    try:
        every = found if module.check_mode else awaited_links.add(found)
    except FileFault as fault:
        if module.params["strict"]:
            raise
        unnoted = str(fault)
    return {"links": meant(module, every), "standing": found, "unnoted": unnoted}


def meant(module, rows):
    """Those of these links that are of the instances."""
    return [row for row in rows if row["instance"] in module.params["instances"]]


def whole(module):
    """Wait; what is wrong is a failure, and stays noted."""
    before = known(module)
    wanted = before if module.params["wanted"] is None else module.params["wanted"]
    result = {"links": meant(module, wanted), "canaries": {}}
    try:
        complaints, result["canaries"] = waited(module, result["links"])
    except CommandFault as fault:
        module.fail_json(msg=str(fault), **result)
    if complaints:
        wait_s = module.params["wait_s"]
        module.fail_json(msg=f"not whole after {wait_s} s: {'; '.join(complaints)}; {REMEDY}", **result)
    if not module.check_mode and before:
        drop(module, result["links"])
    return result


def drop(module, rows):
    """These are noted no longer; they stay where that cannot be written and is no failure."""
    try:
        awaited_links.drop(rows)
    except FileFault:
        if module.params["strict"]:
            raise


def known(module):
    """What is noted; nothing where that cannot be read and is no failure."""
    try:
        return awaited_links.look()
    except FileFault:
        if module.params["strict"]:
            raise
        return []


def settled(module):
    """One look, where anything is noted."""
    try:
        rows = awaited_links.look()
        missing = [row for name in module.params["instances"] for row in missing_of(module, name, rows)]
        if not module.check_mode:
            awaited_links.drop([row for row in meant(module, rows) if row not in missing])
    except (CommandFault, FileFault) as fault:
        return {"links": [], "missing": [str(fault)]}
    return {"links": missing, "missing": [awaited_links.name_of(row) for row in missing]}


def missing_of(module, name, rows):
    """Those of an instance that do not stand."""
    own = [row for row in rows if row["instance"] == name]
    return links.missing(partial(node.ask, name, executable=module.params["executable"]), own) if own else []


def waited(module, wanted):
    """The faults of all instances, and their canaries."""
    complaints, canaries = [], {}
    for name in module.params["instances"]:
        own = [row for row in wanted if row["instance"] == name]
        if not own:
            continue
        ask = partial(node.ask, name, executable=module.params["executable"])
        found, canary = links.wait(ask, own, module.params["wait_s"], module.params["nodes"], module.params["stood"])
        canaries[name] = (canary or {}).get("links", [])
        complaints += [f"{name}: {each}" for each in found]
    return complaints, canaries


def forgotten(module):
    """Nothing is waited for any more; what cannot be read is given up as well."""
    try:
        found = awaited_links.look()
        told = [awaited_links.name_of(row) for row in found]
    except FileFault as fault:
        found, told = [], [str(fault)]
    if not module.check_mode:
        awaited_links.forget()
    return {"links": found, "given_up": told}


STATES = {
    "standing": lambda module: {"links": standing(module)},
    "noted": noted,
    "awaited": lambda module: {"links": meant(module, awaited_links.look())},
    "whole": whole,
    "settled": settled,
    "forgotten": forgotten,
}


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "state": {
                "type": "str",
                "choices": list(STATES),
                "default": "standing",
            },
            "instances": {"type": "list", "elements": "str", "required": True},
            "wanted": {"type": "list", "elements": "dict"},
            "nodes": {"type": "list", "elements": "str"},
            "stood": {"type": "list", "elements": "dict", "default": []},
            "strict": {"type": "bool", "default": True},
            "wait_s": {"type": "int", "default": 60},
            "executable": {"type": "path", "default": EXECUTABLE},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(changed=False, **STATES[module.params["state"]](module))
    except (CommandFault, FileFault) as fault:
        module.fail_json(msg=str(fault), links=[])


if __name__ == "__main__":
    main()
