"""Looks where the fixed runs do not: fresh seeds, for as long as you have.

    .ci/soak.py --minutes 30 [--seed N]
    .ci/soak.py --histories 5000 --cluster-histories 1000 [--seed N]

Two workers share the time: one runs simulated histories, the other takes turns (TURNS) between the codec's fuzzer,
that of all else that takes bytes of others, crash points with other seeds, properties with other examples, histories
of clusters, also of such with old journals, whole tables of which each day has a third, histories in which bugs show,
of disks that do not do what they say, of nodes that are backed up, and of clusters with all switched on, that page,
whose queues drain, or whose nodes leave, are given up, lose their heirs as they leave, or find each other by names,
crowds of peers, a search for planted bugs, and small breaks of the code that tests should notice.
Everything that is found says how to run it again. Exit code 1 if anything was found.

With counts instead of a time both workers run histories alone, HISTORIES_MAX at a time: a line each, and a total.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOGS = ROOT / ".build" / "soak"
FUZZ_TURN_S = 60.0
CLUSTERS_TURN_S = 300.0
HISTORIES_TURN_S = 60.0
MUTANTS_TURN_S = 300.0
TURNS = (
    "fuzzer", "tables", "crash points", "properties", "clusters", "crowds", "old copies", "rooms", "bugs", "mutants",
    "worn disks", "full clusters", "given up", "planted bugs", "fallen heirs", "backed up", "named", "drained",
    "leaving", "leaving subscriptions", "paged cluster",
)  # fmt: skip
HISTORIES_MAX = 500
# One turn of the others may outlast the time by this, so that a soak ends nearly when it said.
OVERTIME_S_MAX = 240.0
# Of their rows a run of all takes a third each day (tests/sim/days.py:share_of_today). An early turn, as no other one
# has them; these tests alone, as the rest of their files is in each run of all.
TABLES = (
    *(f"tests/sim/test_{name}" for name in (
        "simulation.py::test_seeded_bugs_are_found", "simulation.py::test_seeded_bugs_of_features_are_found",
        "simulation.py::test_seeded_bugs_of_full_disks_are_found",
        "simulation.py::test_seeded_bugs_of_messages_in_files_are_found",
        "simulation.py::test_seeded_bugs_of_paging_are_found",
        "simulation.py::test_seeded_bugs_of_transactions_are_found",
        "clusters.py::test_the_checker_finds_seeded_bugs", "worn_disks.py::test_seeded_bugs_are_found",
        "backed_up.py::test_seeded_bugs_are_found", "old_copies.py::test_seeded_bugs_are_found",
        "drained.py::test_a_bug_is_found", "fallen_heirs.py::test_a_bug_is_found",
        "ledger.py::test_a_point_that_says_nothing_is_noticed",
    )),
    "tests/crash/test_crash_points.py::test_seeded_bugs_are_found",
    "tests/system/broker/test_floods.py::test_a_bystander_is_answered_in_between",
    *(f"tests/system/mqctl/test_{name}" for name in (
        "completion.py::test_what_is_offered", "hosts_that_fall_out.py::test_who_is_lost_holds_up_nobody",
        "playbook.py::test_no_canary_in_any_output_or_left_behind",
        "plain_playbooks.py::test_a_damaged_note_of_links_holds_up_a_rollout_and_no_rollback",
        "plain_playbooks.py::test_a_member_that_is_away_makes_no_other_host_unreachable",
        "plain_playbooks.py::test_at_the_end_of_a_run_links_that_stand_are_noted_no_longer",
        "plain_playbooks.py::test_each_host_of_a_run_of_two_clusters_has_the_members_of_its_own",
        "plain_playbooks.py::test_a_rollback_begins_where_nothing_is_under_way_and_hosts_are_as_they_were_looked_at",
        "plain_playbooks.py::test_a_run_that_wakes_up_does_nothing_to_a_host_that_another_one_has",
        "plain_playbooks.py::test_what_an_earlier_run_has_restarted_comes_before_another_host",
        "plain_playbooks.py::test_who_is_lost_while_it_waits_for_links_lets_nobody_be_restarted",
    )),
)  # fmt: skip
CRASH_TESTS = ("tests/crash/test_crash_points.py", "-k", "test_power_cut or test_one_call_fails")


@dataclass(frozen=True, slots=True)
class Turn:
    """One command. `setting` is the environment that makes it this one and no other."""

    name: str
    command: tuple[str, ...]
    setting: tuple[tuple[str, str], ...] = ()

    @property
    def again(self) -> str:
        words = ["python" if word == sys.executable else f"'{word}'" if " " in word else word for word in self.command]
        return " ".join([*(f"{name}={value}" for name, value in self.setting), *words])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30, help="how long (default: %(default)g)")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**9, help="first seed (default: from the clock)")
    parser.add_argument("--histories", type=int, default=0, metavar="N", help="so many of one node, instead of a time")
    parser.add_argument("--cluster-histories", type=int, default=0, metavar="N", help="and so many of clusters")
    options = parser.parse_args()
    if not 0 < options.minutes <= 24 * 60:
        parser.error("--minutes must be above 0 and at most a day")
    if min(options.histories, options.cluster_histories) < 0:
        parser.error("--histories and --cluster-histories are not below 0")
    LOGS.mkdir(parents=True, exist_ok=True)
    if options.histories or options.cluster_histories:
        return counted(options.seed, options.histories, options.cluster_histories)
    deadline_s = time.monotonic() + options.minutes * 60
    say(f"{options.minutes:g} minutes from seed {options.seed}")
    with ThreadPoolExecutor(2) as workers:
        jobs = [workers.submit(worker, options.seed, deadline_s) for worker in (histories, others)]
        found = [one for job in jobs for one in job.result()]
    return told(found)


def told(found: list[Turn]) -> int:
    for turn in found:
        say(f"FOUND by {turn.name}; again: {turn.again}")
    say(f"{len(found)} failed" if found else "nothing found")
    return 1 if found else 0


def counted(seed: int, of_one_node: int, of_clusters: int) -> int:
    """So many histories of each kind; a seed that fails is named with the command that replays it."""
    say(f"{of_one_node} histories of one node and {of_clusters} of clusters from seed {seed}")
    turns = pieces("simulation", (), seed, of_one_node) + pieces("clusters", ("--cluster",), seed, of_clusters)
    with ThreadPoolExecutor(2) as workers:
        passed = list(workers.map(lambda turn: take(turn, math.inf), turns))
    return told([turn for turn, is_good in zip(turns, passed, strict=True) if not is_good])


def pieces(name: str, option: tuple[str, ...], seed: int, count: int) -> list[Turn]:
    """Turns that together run so many histories from a seed on."""
    starts = range(seed, seed + count, HISTORIES_MAX)
    return [
        Turn(f"{name} {first}", (sys.executable, "-m", "tests.sim", *option, "--count",
                                 str(min(HISTORIES_MAX, seed + count - first)), "--from", str(first)))
        for first in starts
    ]  # fmt: skip


def histories(seed: int, deadline_s: float) -> list[Turn]:
    """All the time in one process: it counts and names its own seeds."""
    left_s = max(1.0, deadline_s - time.monotonic())
    command = (sys.executable, "-m", "tests.sim", "--soak", f"{left_s:.0f}", "--from", str(seed))
    turn = Turn("simulation", command)
    return [] if take(turn, left_s) else [turn]


def others(seed: int, deadline_s: float) -> list[Turn]:
    found, number = [], 0
    while (left_s := deadline_s - time.monotonic()) > 0:
        turn = turn_of(number, seed + number, left_s)
        if not take(turn, left_s):
            found.append(turn)
        number += 1
    return found


def turn_of(number: int, seed: int, left_s: float) -> Turn:
    pytest = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    fuzz_s, first = f"{min(FUZZ_TURN_S, left_s):.0f}", str(seed * 1000)
    name = TURNS[number % len(TURNS)]
    if name == "fuzzer":
        return Turn(name, (sys.executable, "-m", "tests.fuzz.fuzz_wire", "--seconds", fuzz_s, "--seed", str(seed)))
    if name == "crash points":
        return Turn(name, (*pytest, *CRASH_TESTS), (("CRASH_SEED", str(seed)),))
    if name == "clusters":
        seconds = f"{min(CLUSTERS_TURN_S, left_s):.0f}"
        return Turn(name, (sys.executable, "-m", "tests.sim", "--cluster", "--soak", seconds, "--from", first))
    if name == "crowds":
        return Turn(name, (*pytest, "-s", "--timeout=600", "tests/system/broker/test_crowds.py"), (("SOAK", "1"),))
    if name == "tables":
        return Turn(name, (*pytest, *TABLES), (("SOAK", "1"),))
    if name == "rooms":
        return Turn(name, (sys.executable, "-m", "tests.fuzz.fuzz_rooms", "--seconds", fuzz_s, "--seed", str(seed)))
    if name == "planted bugs":
        seconds = f"{min(CLUSTERS_TURN_S, left_s):.0f}"
        return Turn(name, (sys.executable, "-m", "tests.sim.search", "--seconds", seconds, "--from", first))
    if name == "mutants":
        seconds = f"{min(MUTANTS_TURN_S, left_s):.0f}"
        return Turn(name, (sys.executable, "-m", "tests.mutants", "--seconds", seconds, "--seed", str(seed)))
    if name == "properties":
        words = ("--timeout=600", f"--hypothesis-seed={seed}", "-m", "not system", "tests/unit", "tests/fuzz")
        return Turn(name, (*pytest, *words), (("SOAK", "1"), ("EXAMPLES", "1000")))
    option, seconds = f"--{name.replace(' ', '-')}", f"{min(HISTORIES_TURN_S, left_s):.0f}"
    return Turn(name, (sys.executable, "-m", "tests.sim", option, "--soak", seconds, "--from", first))


def take(turn: Turn, left_s: float) -> bool:
    """Run it; whether it found nothing. Its output is kept in a file and shown when it did."""
    log = LOGS / f"{turn.name.replace(' ', '-')}.log"
    started_s = time.monotonic()
    with log.open("w") as out:
        process = subprocess.Popen(
            turn.command,
            cwd=ROOT,
            env={**os.environ, **dict(turn.setting)},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        try:
            code = process.wait(None if math.isinf(left_s) else left_s + OVERTIME_S_MAX)
            cut_off = ""
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            # Ended by us, not by a finding: a long turn at the end of the time.
            code, cut_off = 0, "cut off as the time is over, what it had not come to yet is not looked at: "
    lines = log.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
    say(f"{turn.name}: {time.monotonic() - started_s:.0f} s: {cut_off}{lines[-1]}")
    if code != 0:
        print("\n".join(lines[-60:]), flush=True)
    return code == 0


def say(text: str) -> None:
    print(f"soak: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
