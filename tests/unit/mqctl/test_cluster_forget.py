"""Who has a node forgotten does not come in the way of an operation. Hosts are folders of this machine."""

from __future__ import annotations

import pytest
from mqctl import operation
from mqctl.commands.repair import cluster_forget
from mqctl.errors import CommandError
from mqctl.exits import Exit
from mqctl.inventory import Host, InventoryCluster
from mqctl.world import World

from tests.unit.mqctl import test_gate
from tests.unit.mqctl.test_gate_asked import plain_world, world
from tests.unit.mqctl.test_operation import NAMES, VARIABLES

__all__ = ["plain_world", "world"]


@pytest.mark.slow
def test_nothing_is_forgotten_while_an_operation_holds_the_cluster_unless_by_force(world: World) -> None:
    cluster = InventoryCluster("main", tuple(Host(name, "main", VARIABLES, {}) for name in NAMES))
    own = operation.begin(world, cluster, "mqctl scale-down mq3")
    # Brokers of this test break off where they are asked what they do not know.
    with pytest.raises(CommandError, match=r"mqctl scale-down mq3.* is under way") as raised:
        cluster_forget.run(world, cluster_forget.Options(node="mq2", yes=True))
    assert "--force" in raised.value.attempt
    for name in NAMES:
        answer = {"node_id": "id-mq2", "action": "reroute", "messages": 0}
        topology = {"members": [{"node": "mq2", "node_id": "id-mq2"}], "links": []}
        test_gate.says(world, name, topology=topology, **{"cluster-forget": answer})
    assert cluster_forget.run(world, cluster_forget.Options(node="mq2", yes=True, force=True)) == Exit.DONE
    operation.end(world, own)
    assert cluster_forget.run(world, cluster_forget.Options(node="mq2", yes=True)) == Exit.DONE
