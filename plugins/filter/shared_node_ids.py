# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Node ids that are at several places, compared on the control node."""

from __future__ import annotations

DOCUMENTATION = r"""
name: shared_node_ids
short_description: Says which node ids of a host are at several places
version_added: 0.1.0
description:
  - Compares identities as M(mqops.cluster.node_identity) returned them.
positional: peers
options:
  _input:
    description: Identities of one host.
    type: list
    elements: dict
    required: true
  peers:
    description: Identities of the nodes of the cluster; those of the host itself may be among them.
    type: list
    elements: dict
    required: true
author:
  - mqops maintainers (@mqops)
"""

EXAMPLES = r"""
- name: No node id occurs twice in the cluster
  ansible.builtin.assert:
    that: identity.identities | mqops.cluster.shared_node_ids(all_identities) == ''
"""

RETURN = r"""
_value:
  description: A sentence with places and remedy; empty where each id is at one place.
  type: str
"""

from ansible_collections.mqops.cluster.plugins.module_utils import identity


def shared_node_ids(own, peers):
    """What to say of ids of `own` that are elsewhere as well; nothing where each is at one place."""
    twice = identity.duplicates(own, peers)
    return identity.sentence(twice) if twice else ""


class FilterModule:
    """Names the filter."""

    def filters(self):
        """Name -> function."""
        return {"shared_node_ids": shared_node_ids}
