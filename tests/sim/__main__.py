"""Replay or explore histories: `python -m tests.sim [--KIND] SEED`, or with `--soak SECONDS` or `--count N`. `--help`
names the kinds."""

from __future__ import annotations

import argparse
import math
import sys
import time
from typing import Final

from tests.sim.backed_up import BackedUp
from tests.sim.clusters import ClusterSimulation
from tests.sim.drained import DrainedClusters, LeavingClusters, LeavingSubscriptions
from tests.sim.fallen_heirs import FallenHeirs
from tests.sim.full_clusters import FullClusters
from tests.sim.given_up import GivenUpClusters
from tests.sim.histories import Simulation
from tests.sim.named import NamedClusters
from tests.sim.old_copies import OldCopies
from tests.sim.paged_clusters import PagedClusters
from tests.sim.planted import PlantedSimulation
from tests.sim.worn_disks import WornDisks

Kind = type[Simulation | ClusterSimulation | OldCopies]
KINDS: Final[dict[str, Kind]] = {
    "cluster": ClusterSimulation, "old_copies": OldCopies, "paged_cluster": PagedClusters, "bugs": PlantedSimulation,
    "worn_disks": WornDisks, "full_clusters": FullClusters, "given_up": GivenUpClusters,
    "drained": DrainedClusters, "leaving": LeavingClusters, "leaving_subscriptions": LeavingSubscriptions,
    "fallen_heirs": FallenHeirs, "backed_up": BackedUp, "named": NamedClusters,
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("seed", type=int, nargs="?", help="replay this history")
    parser.add_argument("--soak", type=float, metavar="SECONDS", help="run histories for so long")
    parser.add_argument("--count", type=int, metavar="N", help="run so many histories")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--cluster", action="store_true", help="histories of several nodes that are a cluster")
    kinds.add_argument(
        "--old-copies", action="store_true", help="of clusters of which a node begins with an old journal"
    )
    kinds.add_argument("--paged-cluster", action="store_true", help="of clusters that page, with priorities")
    kinds.add_argument("--full-clusters", action="store_true", help="of clusters with much that can be switched on")
    kinds.add_argument("--given-up", action="store_true", help="of clusters whose nodes are given up and come back")
    kinds.add_argument("--drained", action="store_true", help="of clusters whose queues drain to other nodes")
    kinds.add_argument("--leaving", action="store_true", help="of clusters of which whole nodes leave")
    kinds.add_argument(
        "--leaving-subscriptions", action="store_true", help="of clusters of which nodes leave that have subscriptions"
    )
    kinds.add_argument(
        "--fallen-heirs", action="store_true", help="of clusters of which a node leaves and its heir is lost"
    )
    kinds.add_argument("--worn-disks", action="store_true", help="of disks that misplace writes, or lie of syncs")
    kinds.add_argument("--backed-up", action="store_true", help="of nodes that are backed up under way")
    kinds.add_argument("--named", action="store_true", help="of clusters whose nodes find each other by names of DNS")
    kinds.add_argument("--bugs", action="store_true", help="of one node in which bugs show at random")
    parser.add_argument("--from", type=int, dest="first", help="first seed of a soak (default: from the clock)")
    arguments = parser.parse_args()
    simulation: Kind = next((kind for name, kind in KINDS.items() if getattr(arguments, name)), Simulation)
    if arguments.seed is not None:
        verdict = simulation(arguments.seed).run()
        print(verdict)
        return 1 if verdict.violations else 0
    if arguments.soak is None and arguments.count is None:
        parser.error("a SEED, --soak SECONDS or --count N is needed")
    first = time.time_ns() % 10**9 if arguments.first is None else arguments.first
    deadline_s = math.inf if arguments.soak is None else time.monotonic() + arguments.soak
    return soak(simulation, first, deadline_s, arguments.count)


def soak(simulation: Kind, first: int, deadline_s: float, count: int | None = None) -> int:
    """Fresh histories until then, or so many."""
    option = "".join(f"--{name.replace('_', '-')} " for name, kind in KINDS.items() if kind is simulation)
    seed, failed, accepted = first, 0, 0
    while time.monotonic() < deadline_s and (count is None or seed < first + count):
        try:
            verdict = simulation(seed).run()
            violations, accepted = verdict.violations, accepted + verdict.accepted
        except Exception as error:
            violations = [f"{type(error).__name__}: {error}"]
        if violations:
            failed += 1
            print(f"seed {seed}: {violations[:5]}\n  replay with: python -m tests.sim {option}{seed}", flush=True)
        seed += 1
    print(f"{seed - first} histories from seed {first}, {accepted} messages accepted, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
