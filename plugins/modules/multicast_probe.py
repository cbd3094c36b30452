#!/usr/bin/python
# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
from __future__ import annotations

DOCUMENTATION = r"""
module: multicast_probe
short_description: Finds out which hosts of a cluster are heard in its multicast groups
version_added: 0.1.0
description:
  - Joins the groups on the network cards that they are pinned to, sends probes, and notes who is heard on which card.
  - Hosts probe from O(state=started) to O(state=stopped), so it does not matter how many Ansible reaches at a time.
    A probe that nobody stops ends after O(life) seconds.
  - Changes nothing on the host. M(mqops.cluster.multicast_matrix) compares what hosts report.
author: mqops maintainers (@mqops)
options:
  state:
    description: What to do.
    type: str
    choices: [started, reported, stopped]
    required: true
  run:
    description: Name of this run, the same on all hosts and different each time.
    type: str
    required: true
  key:
    description: Hexadecimal digits that only this run knows; probes are signed with it.
    type: str
    default: ""
  cluster:
    description: Name of the cluster.
    type: str
    default: ""
  host:
    description: Name of the host, distinct in the cluster.
    type: str
    default: ""
  instances:
    description: Names of the instances whose node ids are reported.
    type: list
    elements: str
    default: []
  broadcast_groups:
    description: Broadcast groups, as in the role P(mqops.cluster.broker#role).
    type: list
    elements: dict
    default: []
  discovery_groups:
    description: Discovery groups, as in the role P(mqops.cluster.broker#role).
    type: list
    elements: dict
    default: []
  cluster_interface:
    description: Network card that pins groups which have no C(local_bind_address).
    type: str
    default: ""
  local_bind_address:
    description: Address that pins groups which have no C(local_bind_address).
    type: str
    default: ""
  peers:
    description: What O(state=started) returned as RV(ready) on all hosts.
    type: list
    elements: dict
    default: []
  window:
    description: Seconds that are waited for hosts that are not heard.
    type: float
    default: 4.0
  life:
    description: Seconds after which a probe ends by itself.
    type: float
    default: 300.0
attributes:
  check_mode:
    description: The module changes nothing.
    support: full
"""

EXAMPLES = r"""
- name: Begin to probe
  mqops.cluster.multicast_probe:
    state: started
    run: "{{ run }}"
    key: "{{ key }}"
    cluster: main
    host: "{{ inventory_hostname }}"
    cluster_interface: eth1
    broadcast_groups: [{name: lan, group_address: 231.7.7.7, group_port: 9876, connector_ref: cluster}]
    discovery_groups: [{name: lan, group_address: 231.7.7.7, group_port: 9876}]
  register: probe
"""

RETURN = r"""
cluster:
  description: O(cluster).
  returned: when O(state=started)
  type: str
ready:
  description: How others reach this probe.
  returned: when O(state=started)
  type: dict
places:
  description: What is probed on this host.
  returned: when O(state=started)
  type: list
  elements: dict
report:
  description: What was heard.
  returned: when O(state=reported)
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.mqops.cluster.plugins.module_utils import multicast_service as service
from ansible_collections.mqops.cluster.plugins.module_utils.multicast_matrix import places_of

SPEC = {
    "state": {"type": "str", "choices": ["started", "reported", "stopped"], "required": True},
    "run": {"type": "str", "required": True},
    "key": {"type": "str", "default": "", "no_log": True},
    "cluster": {"type": "str", "default": ""},
    "host": {"type": "str", "default": ""},
    "instances": {"type": "list", "elements": "str", "default": []},
    "broadcast_groups": {"type": "list", "elements": "dict", "default": []},
    "discovery_groups": {"type": "list", "elements": "dict", "default": []},
    "cluster_interface": {"type": "str", "default": ""},
    "local_bind_address": {"type": "str", "default": ""},
    "peers": {"type": "list", "elements": "dict", "default": []},
    "window": {"type": "float", "default": 4.0},
    "life": {"type": "float", "default": 300.0},
}


def started(params):
    """Begin to probe."""
    places = places_of(
        params["broadcast_groups"],
        params["discovery_groups"],
        params["cluster_interface"],
        params["local_bind_address"],
    )
    request = {name: params[name] for name in ("cluster", "run", "key", "host", "instances")}
    ready = service.start({**request, "life_s": params["life"], "places": places})
    return {"cluster": params["cluster"], "ready": ready, "places": places}


def reported(params):
    """What was heard so far, or within the window."""
    peers = {one["host"]: one["peer"] for one in params["peers"]}
    return {"report": service.report(params["run"], peers, params["window"])}


def main():
    """Entry of the module."""
    module = AnsibleModule(
        argument_spec=SPEC,
        supports_check_mode=True,
        required_if=[("state", "started", ("key", "cluster", "host"))],
    )
    params = module.params
    try:
        if params["state"] == "started":
            found = started(params)
        elif params["state"] == "reported":
            found = reported(params)
        else:
            found = {"was_running": service.stop(params["run"])}
    except service.ProbeFault as fault:
        module.fail_json(msg=str(fault))
    module.exit_json(changed=False, **found)


if __name__ == "__main__":
    main()
