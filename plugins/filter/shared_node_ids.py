# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Node ids that are at several places, compared on the control node."""

from __future__ import annotations

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
