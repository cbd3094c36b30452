"""Who would not be served if some nodes were away, and what a rollout, a drain and a removal make of that."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mqctl.errors import CommandError
from mqctl.gate import facts, gate
from mqctl.gate.losses import UNASKED, Gossip, Standing, losses
from mqctl.inventory import Host, InventoryCluster
from mqctl.nodes import BROKER, nodes_in
from mqctl.output import data_console
from mqctl.plan.plan import Change
from mqctl.ssh.local import LocalShell, LocalStream
from mqctl.ssh.shell import CommandResult
from mqctl.world import World
from rich.console import Console

from tests.support.local_hosts import LocalHosts

HOSTS = ("mq1", "mq2", "mq3")


def node(name: str, **changes: Any) -> Standing:
    sets = {key: frozenset(value) for key, value in changes.items() if key in ("read", "written", "open", "idle")}
    return Standing(name, **{**changes, **sets})


def lost(*nodes: Standing, away: tuple[str, ...] = ("mq3",), sent_to: tuple[str, ...] = ()) -> list[str]:
    return [one.what for one in losses(nodes, away, sent_to)]


# -- queues -----------------------------------------------------------------------------------------------------------

READER = node("mq3", read=["orders"])
# (who else is there, where clients are sent to) -> what is lost. A case a row.
QUEUES: list[tuple[list[Standing], tuple[str, ...], bool]] = [
    ([], (), True),
    ([node("mq1")], (), True),
    ([node("mq1", read=["others"])], (), True),
    ([node("mq1", read=["orders"])], (), False),
    ([node("mq1", read=["orders"], takes_clients=False)], (), True),
    ([node("mq1", read=["orders"], idle=["orders"])], (), True),
    ([node("mq1", read=["orders"], idle=["others"])], (), False),
    ([node("mq1", read=["orders"], idle=["orders"]), node("mq2", read=["orders"])], (), False),
    ([node("mq1"), node("mq2", read=["orders"])], (), False),
    ([node("mq1", invites=True)], ("mq1",), False),
    ([node("mq1", invites=True)], (), True),
    ([node("mq1", invites=True), node("mq2")], ("mq2",), True),
    ([node("mq1", invites=True, takes_clients=False)], ("mq1",), True),
    ([node("mq1", invites=True, idle=["orders"])], ("mq1",), True),
    ([node("mq1", invites=True, idle=["others"])], ("mq1",), False),
    ([node("mq1", invites=True, idle=["orders"]), node("mq2", invites=True)], ("mq1", "mq2"), False),
]


@pytest.mark.parametrize(("others", "sent_to", "is_lost"), QUEUES)
def test_a_queue_is_served_where_clients_of_it_stay_or_are_sent_to(
    others: list[Standing], sent_to: tuple[str, ...], *, is_lost: bool
) -> None:
    assert lost(READER, *others, sent_to=sent_to) == (["queue orders"] if is_lost else [])


def test_what_hands_out_or_takes_in_nothing_serves_nobody_where_it_goes() -> None:
    """Paused on purpose everywhere, or full everywhere: who goes costs nobody anything."""
    paused = [node(name, read=["orders"], idle=["orders"]) for name in HOSTS]
    assert lost(*paused) == []
    assert lost(node("mq1"), node("mq3", read=["orders", "jobs"], idle=["orders"])) == ["queue jobs"]
    full = [node(name, written=["orders"], open=["orders"], full="its disk has no room") for name in HOSTS]
    assert lost(*full) == []
    assert lost(*full[:2], node("mq3", written=["orders"], open=["orders"])) == ["address orders"]
    shut = [node(name, written=["orders"], shut={"orders": facts.BLOCKED}) for name in HOSTS]
    assert lost(*shut) == []
    # What nobody has asked for may page, and be taken there.
    unasked = [node(name, written=["orders"], shut={"orders": UNASKED}) for name in HOSTS]
    assert lost(*unasked) == ["address orders"]
    # Who is sent to a node where it is paused is told where.
    (one,) = losses([node("mq1", invites=True, idle=["orders"]), READER], ("mq3",), ("mq1",))
    assert one.text.endswith("as mq1 has it paused (mqctl queue or address resume at mq1)")


def test_two_that_go_together_do_not_stand_in_for_each_other() -> None:
    both = [node("mq1"), node("mq2", read=["orders"]), READER]
    assert lost(*both, away=("mq2",)) == lost(*both, away=("mq3",)) == []
    assert lost(*both, away=("mq2", "mq3")) == ["queue orders"]
    (one,) = losses(both, ("mq2", "mq3"))
    assert one.text == "queue orders: is consumed from at mq2, mq3 alone (start a consumer at mq1)"


# -- addresses --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("others", "is_lost", "why"),
    [
        ([], True, "no other node takes clients"),
        ([node("mq1")], True, "mq1: it does not exist there, and is not made for who sends"),
        ([node("mq1", shut={"orders": facts.BLOCKED})], True, f"mq1: {facts.BLOCKED}"),
        ([node("mq1", open=["orders"])], False, ""),
        ([node("mq1", open=["orders"], takes_clients=False)], True, "no other node takes clients"),
        ([node("mq1"), node("mq2", open=["orders"])], False, ""),
        ([node("mq1", open=["orders"], full="its disk has no room")], True, "mq1: its disk has no room"),
        ([node("mq1", open=["orders"], full="its disk has no room"), node("mq2", open=["orders"])], False, ""),
    ],
)
def test_an_address_keeps_a_node_that_takes_its_producers(others: list[Standing], *, is_lost: bool, why: str) -> None:
    writer = node("mq3", written=["orders"], open=["orders"])
    found = losses([writer, *others], ("mq3",))
    assert [one.what for one in found] == (["address orders"] if is_lost else [])
    assert all(why in one.why for one in found)
    # Nobody sends to it where it goes away.
    assert lost(replace(writer, written=frozenset()), *others) == []


# -- discovery --------------------------------------------------------------------------------------------------------


def gossips(name: str, *peers: str, **changes: Any) -> Standing:
    return node(name, gossip=[Gossip("lan", f"{name}:9", frozenset(f"{peer}:9" for peer in peers))], **changes)


def test_each_that_gossips_keeps_a_peer() -> None:
    seeded = [gossips("mq1", "mq3"), gossips("mq2", "mq3"), gossips("mq3", "mq3")]
    assert lost(*seeded) == ["discovery group lan of mq1", "discovery group lan of mq2"]
    assert lost(*seeded, away=("mq1",)) == []
    # Its own place keeps nobody company, and one that is nobody's of the cluster may.
    assert lost(gossips("mq1", "mq1", "mq3"), *seeded[1:]) == [
        "discovery group lan of mq1",
        "discovery group lan of mq2",
    ]
    assert lost(gossips("mq1", "elsewhere", "mq3"), *seeded[1:]) == ["discovery group lan of mq2"]
    # A node that is alone then has nobody to find.
    assert lost(seeded[0], seeded[2]) == []


def test_each_name_leads_to_another_node() -> None:
    def led(name: str, *to: str) -> Standing:
        return node(name, resolved={"names": frozenset(to)})

    others = [led("mq2", "mq1", "mq2", "mq3"), led("mq3", "mq3")]
    assert lost(led("mq1", "mq3"), *others) == ["discovery group names of mq1"]
    assert lost(led("mq1", "mq1", "mq3"), *others) == ["discovery group names of mq1"]
    assert lost(led("mq1", "mq2", "mq3"), *others) == []
    assert lost(led("mq1"), *others) == []


def test_a_restart_asks_for_no_discovery_and_for_nobody_who_is_not_there() -> None:
    seeded = [gossips("mq1", "mq3"), gossips("mq2", "mq3"), gossips("mq3", "mq3", read=["orders"], written=["orders"])]
    whats = ["queue orders", "address orders"]
    assert [one.what for one in losses(seeded, ("mq3",), is_restart=True)] == whats
    assert losses(seeded[2:], ("mq3",), is_restart=True) == []
    subscribed = node("mq3", read=["durable"], kept=frozenset({"durable"}))
    assert losses([*seeded[:2], subscribed], ("mq3",), is_restart=True) == []
    assert lost(node("mq1"), subscribed) == ["queue durable"]
    assert [one.what for one in losses(seeded[2:], ("mq3",))] == whats
    # Another one that does not answer is there, and who does not say whom it serves is told of.
    silent = node("mq1", answers=False, faults=["it is silent"])
    assert [one.what for one in losses([silent, seeded[2]], ("mq3",), is_restart=True)] == whats
    assert [one.what for one in losses([silent], ("mq1",), is_restart=True)] == ["mq1"]


def test_an_address_that_is_made_for_one_client_needs_nobody_else() -> None:
    names = ["temporary.7", "$cluster", "orders", None]
    assert facts.written_in({"producers": [{"address": name} for name in names]}) == {"orders"}


# -- what nodes say ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "is_read"),
    [
        ({}, True), ({"consumer_count": 0}, False), ({"routing_type": "forward"}, False),
        ({"routing_type": "multicast", "durable": False}, False), ({"routing_type": "multicast"}, True),
        ({"name": "temporary.7"}, False), ({"name": "$cluster"}, False),
    ],
)  # fmt: skip
def test_what_goes_with_its_client_needs_nobody_else(changes: dict[str, Any], *, is_read: bool) -> None:
    row = {"name": "orders", "routing_type": "anycast", "durable": True, "consumer_count": 1} | changes
    assert facts.is_read(row) is is_read


QUEUE = {"name": "orders", "routing_type": "anycast", "durable": True, "consumer_count": 1, "paused": False}
HEALTH = {"state": "active", "grants_credit": True, "has_room": True, "holds_back": False, "has_yielded": False,
          "is_disk_low": False}  # fmt: skip
BROKER_PROGRAM = f"""#!{sys.executable}
import json, sys
from pathlib import Path
said = json.loads((Path(__file__).resolve().parents[1] / "said.json").read_text())
for line in sys.stdin:
    row = json.loads(line)
    print(json.dumps({{"id": row["id"], "result": said[row["op"]]}}), flush=True)
"""


class HostShell(LocalShell):
    """Commands find a folder in the place of the host's own."""

    root = Path()

    def run_plain(self, command: str, stdin: bytes, timeout_s: float) -> CommandResult:
        return super().run_plain(
            command.replace("systemctl show", f"cat {self.root / self.name}/unit; :"), stdin, timeout_s
        )

    def open_plain(self, command: str, prefix: bytes) -> LocalStream:
        return super().open_plain(command.replace(BROKER, f"{self.root / self.name}/bin/mqbroker"), prefix)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(HostShell, "root", tmp_path)
    out = io.StringIO()
    return World(
        {}, tmp_path, io.BytesIO(), out, data_console(out, has_colour=False), Console(file=io.StringIO(), width=500),
        connector=LocalHosts(HostShell),
    )  # fmt: skip


def serving(tmp_path: Path) -> None:
    """What brokers of three hosts say."""
    members = [{"node": name, "node_id": f"id-{name}", "connector": f"amqp://{name}:5673"} for name in HOSTS]
    for name in HOSTS:
        (tmp_path / name / "bin").mkdir(parents=True)
        (tmp_path / name / "bin/mqbroker").write_text(BROKER_PROGRAM)
        (tmp_path / name / "bin/mqbroker").chmod(0o755)
        known = [one | {"is_self": one["node"] == name} for one in members]
        reads = [QUEUE | {"consumer_count": int(name != "mq3")}]
        peers = [{"option": "discovery-groups.lan.discovery", "value": "gossip"},
                 {"option": "discovery-groups.lan.peers", "value": ["mq2:9"]},
                 {"option": "discovery-groups.lan.local-bind-address", "value": name},
                 {"option": "discovery-groups.lan.local-bind-port", "value": 9}]  # fmt: skip
        answers = {
            "topology": {"node_id": f"id-{name}", "members": known}, "queues": {"queues": reads},
            "addresses": {"addresses": [{"name": "orders", "paused": False}] if name != "mq1" else []},
            "producers": {"producers": [{"address": "orders"}, {"address": None}] if name == "mq3" else []},
            "config-show": {"options": peers}, "discovery": {"nodes": []}, "scale-down-show": {"state": "none"},
            "address-settings-show": {"settings": [{"setting": "auto-create-addresses", "value": False}]},
            "health": HEALTH,
        }  # fmt: skip
        (tmp_path / name / "said.json").write_text(json.dumps(answers))


@pytest.fixture
def cluster(tmp_path: Path) -> InventoryCluster:
    """Three nodes, of which two consume from orders and the third sends there."""
    variables = {"ansible_connection": "local", "ansible_become": False, "ansible_python_interpreter": sys.executable}
    serving(tmp_path)
    return InventoryCluster("main", tuple(Host(name, "main", variables, {}) for name in HOSTS))


def told(world: World) -> str:
    assert isinstance(world.err.file, io.StringIO)
    return world.err.file.getvalue()


def says(world: World, name: str, **answers: Any) -> None:
    file = world.cwd / name / "said.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | answers))


@pytest.mark.slow
def test_what_nodes_say_is_judged(world: World, cluster: InventoryCluster) -> None:
    mq1, mq2, mq3 = cluster.hosts
    assert gate.lost(world, cluster, [["mq1"], ["mq3"]]) == []
    (said,) = gate.lost(world, cluster, [["mq1"], ["mq1", "mq2"]])[:1]
    assert said.startswith("queue orders: is consumed from at mq1, mq2 alone")
    # mq2 is the only one that gossip names.
    assert gate.lost(world, cluster, [["mq2"]])[0].startswith("discovery group lan of mq1: gossips with mq2:9 alone")
    gate.require_served(world, cluster, [[mq1], [mq3]], is_forced=False)
    with pytest.raises(CommandError, match="nothing was changed") as raised:
        gate.require_served(world, cluster, [[mq1], [mq2]], is_forced=False)
    assert "--force" in raised.value.attempt
    assert told(world) == ""
    gate.require_served(world, cluster, [[mq2]], is_forced=True)
    assert told(world).startswith("given up: discovery group lan of mq1")


def test_a_name_that_leads_to_a_node_is_told_by_the_name_of_that(world: World, cluster: InventoryCluster) -> None:
    heard = [{"discovery": "dns", "group": "lan", "connector": f"amqp://{name}:5673"} for name in ("mq2", "strange")]
    says(world, "mq1", discovery={"nodes": heard})
    (standing,) = [one for one in facts.standings(world, nodes_in(cluster)) if one.name == "mq1"]
    assert standing.resolved == {"lan": frozenset({"mq2", "amqp://strange:5673"})}


def test_an_address_that_would_be_made_elsewhere_is_open_there(world: World, cluster: InventoryCluster) -> None:
    says(world, "mq2", addresses={"addresses": []})
    (said,) = gate.lost(world, cluster, [["mq3"]])
    assert "mq1: it does not exist there, and is not made for who sends; mq2: it does not exist there" in said
    made = {"settings": [{"setting": "auto-create-addresses", "value": True}]}
    says(world, "mq1", **{"address-settings-show": made})
    assert gate.lost(world, cluster, [["mq3"]]) == []


def test_an_address_that_is_paused_takes_producers(world: World, cluster: InventoryCluster) -> None:
    """A pause hands out nothing; what is sent there is taken, where it goes as where it stays."""
    paused = {"addresses": [{"name": "orders", "paused": True}]}
    says(world, "mq2", addresses=paused)
    assert gate.lost(world, cluster, [["mq3"]]) == []
    says(world, "mq2", addresses={"addresses": []})
    says(world, "mq3", addresses=paused)
    (said,) = gate.lost(world, cluster, [["mq3"]])
    assert said.startswith("address orders: is sent to at mq3, and taken nowhere else")


@pytest.mark.slow
def test_a_memory_that_is_full_takes_maybe_what_nobody_has_asked_for(
    world: World, cluster: InventoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond as many addresses as are asked for it stands in for none, and where it goes it is a loss."""
    says(world, "mq2", addresses={"addresses": []})
    says(world, "mq3", health=HEALTH | {"holds_back": True})
    assert gate.lost(world, cluster, [["mq3"]]) == []
    monkeypatch.setattr(facts, "ADDRESSES_MAX", 0)
    (said,) = gate.lost(world, cluster, [["mq3"]])
    assert said.startswith("address orders: ")
    says(world, "mq2", health=HEALTH | {"holds_back": True})
    (said,) = gate.lost(world, cluster, [["mq3"]])
    assert f"mq2: {UNASKED}" in said


def test_a_durable_subscription_waits_for_a_restart_and_a_queue_does_not(
    world: World, cluster: InventoryCluster
) -> None:
    rows = [QUEUE | {"name": "news", "routing_type": "multicast"}, QUEUE | {"name": "jobs"}]
    says(world, "mq3", queues={"queues": rows})
    said = gate.lost(world, cluster, [["mq3"]], is_restart=True)
    assert [one.split(":")[0] for one in said] == ["queue jobs"]
    assert len(gate.lost(world, cluster, [["mq3"]])) == 2


def test_a_queue_that_is_paused_at_the_node_that_stays_is_served_by_nobody(
    world: World, cluster: InventoryCluster
) -> None:
    assert gate.lost(world, cluster, [["mq2"]], is_restart=True) == []
    says(world, "mq1", queues={"queues": [QUEUE | {"paused": True}]})
    assert gate.lost(world, cluster, [["mq2"]], is_restart=True) == [
        "queue orders: is consumed from at mq2 alone, as mq1 has it paused (mqctl queue or address resume at mq1)"
    ]
    assert gate.lost(world, cluster, [["mq1"]], is_restart=True) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("health", "why"),
    [
        ({"grants_credit": False}, ""),  # its journal is behind for a moment
        ({"is_disk_low": True}, "mq2: its disk has no room"),
        ({"holds_back": True}, "mq2: the memory for messages is full there, and it does not page"),
        ({"state": "stopping"}, "mq1: it does not exist there"),
        ({"has_yielded": True}, "mq1: it does not exist there"),
    ],
)
def test_a_node_that_takes_no_messages_in_stands_in_for_no_address(
    world: World, cluster: InventoryCluster, health: dict[str, Any], why: str
) -> None:
    assert gate.lost(world, cluster, [["mq3"]], is_restart=True) == []
    says(world, "mq2", health=HEALTH | health)
    said = gate.lost(world, cluster, [["mq3"]], is_restart=True)
    assert len(said) == bool(why)
    assert all(why in one for one in said)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "row", "is_taken"),
    [
        ("PAGE", {}, True),
        ("PAGE", {"can_page": True}, True),
        ("PAGE", {"can_page": False}, False),
        ("BLOCK", {}, False),
    ],
)
def test_a_memory_that_is_full_takes_what_pages(
    world: World, cluster: InventoryCluster, policy: str, row: dict[str, bool], *, is_taken: bool
) -> None:
    """Another address that does not page makes the node say that it holds back."""
    settings = {"settings": [{"setting": "address-full-policy", "value": policy}]}
    rows = {"addresses": [{"name": "orders", "paused": False} | row]}
    says(world, "mq2", health=HEALTH | {"holds_back": True}, addresses=rows, **{"address-settings-show": settings})
    assert (gate.lost(world, cluster, [["mq3"]], is_restart=True) == []) is is_taken
    # A rollout that gives the only node more memory takes nothing from anybody.
    says(world, "mq3", health=HEALTH | {"holds_back": True})
    assert gate.lost(world, cluster, [["mq3"]], is_restart=True) == []


def test_a_release_that_says_less_of_its_health_is_judged_by_the_rest(world: World, cluster: InventoryCluster) -> None:
    says(world, "mq2", health={"grants_credit": True})
    assert gate.lost(world, cluster, [["mq3"]], is_restart=True) == []


def test_a_node_that_does_not_answer_or_leaves_stays_for_nobody(world: World, cluster: InventoryCluster) -> None:
    says(world, "mq2", **{"scale-down-show": {"state": "moving"}})
    assert gate.lost(world, cluster, [["mq1"]])[0].startswith("queue orders")
    (world.cwd / "mq2/bin/mqbroker").unlink()
    assert gate.lost(world, cluster, [["mq1"]])[0].startswith("queue orders")
    assert [one.name for one in facts.standings(world, [])] == []


@pytest.mark.parametrize(
    ("unit", "whys"), [("active", ["mq2: nobody knows whom it serves: mq2"]), ("failed", []), ("inactive", [])]
)
def test_a_node_that_goes_and_does_not_answer_serves_nobody_only_where_it_does_not_run(
    world: World, cluster: InventoryCluster, unit: str, whys: list[str]
) -> None:
    (world.cwd / "mq2/bin/mqbroker").unlink()
    (world.cwd / "mq2/unit").write_text(f"LoadState=loaded\nActiveState={unit}\n")
    said = gate.lost(world, cluster, [["mq2"]])
    assert [one[: len(why)] for one, why in zip(said, whys, strict=True)] == whys
    assert told(world) == ""
    gate.lost(world, cluster, [["mq1"]])
    assert "it stands in for nobody" in told(world)


def test_a_list_of_producers_that_is_cut_is_not_taken_for_all(world: World, cluster: InventoryCluster) -> None:
    says(world, "mq3", producers={"producers": [], "is_whole": False})
    (said,) = gate.lost(world, cluster, [["mq3"]])
    assert said.startswith("mq3: nobody knows whom it serves: it has more producers than are listed")
    assert gate.lost(world, cluster, [["mq1"]]) == []


# -- batches ----------------------------------------------------------------------------------------------------------


def test_a_rollout_is_judged_batch_by_batch() -> None:
    hosts = tuple(Host(name, "main", {"mq_rack": name[0]}, {}) for name in ("b1", "a2", "a1"))
    cluster = InventoryCluster("main", hosts)
    needed = (("b1", "restart"), ("a1", "restart"), ("a2", "restart"), ("a1", "reload"))
    changes = [Change(name, "default", "option x", "change", needs=needs) for name, needs in needed]
    names = [[one.name for one in turn] for turn in gate.restarts(cluster, changes, "2")]
    assert names == [["a1"], ["a2", "b1"]]
    assert gate.restarts(cluster, changes[-1:], "2") == []
