#!/usr/bin/python
# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
from __future__ import annotations

DOCUMENTATION = r"""
module: ask_member
short_description: Asks a host for what a module finds there, and takes its absence for an answer
version_added: 0.1.0
description:
  - Runs a module that changes nothing. Where the host is not reached, neither it nor the host that delegates the task
    to it falls out of the run.
  - Whatever the module says is no failure of this one.
author: mqops maintainers (@mqops)
options:
  module:
    description: Full name of the module.
    type: str
    required: true
  arguments:
    description: Its arguments.
    type: dict
    default: {}
attributes:
  check_mode:
    description: Changes nothing.
    support: full
  action:
    description: Runs on the control node, and the module on the host.
    support: full
"""

EXAMPLES = r"""
- name: Read the node ids of a member that may be switched off
  mqops.cluster.ask_member:
    module: mqops.cluster.node_identity
    arguments:
      instances: [default]
  delegate_to: mq2
  register: member
"""

RETURN = r"""
reached:
  description: Whether the host was reached.
  returned: success
  type: bool
why:
  description: Why it was not reached.
  returned: success
  type: str
answer:
  description: What the module returned; empty where the host was not reached.
  returned: success
  type: dict
"""
