"""What happens to the messages, on any stage: sent, half of them consumed, power cut, the other half, each once."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterable

from demo.ledger import Ledger
from demo.narrator import Call, DoesNotHold, Narrator
from demo.stage import ROOT, Stage

ADDRESS = "orders"
TOTAL = 10_000
HALF = TOTAL // 2
BY_FOREIGN = 2_000
SYSTEM_PYTHON = "/usr/bin/python3"
QUEUE_TIME_S_MAX = 20.0
ELSEWHERE = "parcels"
MOVED = 1_000
CLUSTER_TIME_S_MAX = 60.0
LEFT_TO = "tickets"
LEFT = 5_000
LEAVE_TIME_S_MAX = 240.0
LINKS = 6  # of three nodes, each to both others


class Story:
    """The steps in their order."""

    def __init__(self, narrator: Narrator, stage: Stage) -> None:
        self.narrator = narrator
        self.stage = stage
        self.ledger = Ledger(TOTAL)

    def tell(self) -> None:
        """From an empty machine to the end; raises DoesNotHold at the first step that does not hold."""
        self.stage.set_up()
        self.send()
        self.consume_half()
        self.cut_power()
        self.consume_rest()
        if self.stage.ends is not None:
            self.redistribute(*self.stage.ends)
        self.show_status()
        self.stage.again()
        if self.stage.leaver is not None:
            self.leave(*self.stage.leaver)

    def send(self) -> None:
        self.narrator.step(
            f"{TOTAL:,} durable messages to {self.stage.node}: each is on its disk before it is accepted"
        )
        words = ("send", ADDRESS, "order {n}", "--count", str(TOTAL), "--host", self.stage.node)
        self.stage.mqctl(*words)
        self.expect_left(TOTAL)

    def consume_half(self) -> None:
        self.narrator.step(f"{HALF:,} of them are consumed")
        foreign = BY_FOREIGN if has_proton() else 0
        if not foreign:
            self.narrator.say("The system's Python has no qpid-proton (Debian: python3-qpid-proton libsasl2-modules),")
            self.narrator.say("so no foreign client takes part here.")
        self.receive(HALF - foreign, "--count", str(HALF - foreign))
        if foreign:
            self.receive_by_proton(foreign)
        self.demand(self.ledger.faults(HALF))
        self.expect_left(TOTAL - HALF)

    def receive(self, expected: int, *words: str) -> None:
        """By `mqctl receive`."""
        said = self.stage.mqctl("receive", ADDRESS, "--host", self.stage.node, *words, quiet=True)
        self.note("mqctl", said.out.splitlines(), expected)

    def receive_by_proton(self, count: int) -> None:
        login = self.stage.login()
        self.narrator.say(
            f"The next {count:,} go to a foreign client, Apache Qpid Proton, over AMQP 1.0 at {login.url}:"
        )
        task = {"url": login.url, "user": login.user, "password": login.password, "address": ADDRESS, "count": count}
        words = self.stage.enter([SYSTEM_PYTHON, str(ROOT / "demo" / "proton_receiver.py")])
        shown = f"{SYSTEM_PYTHON} demo/proton_receiver.py"
        said = self.narrator.run(Call(words, shown, stdin=json.dumps(task) + "\n", quiet=True))
        self.note("proton", said.out.splitlines(), count)

    def note(self, who: str, bodies: Iterable[str], expected: int) -> None:
        numbers = self.ledger.take(bodies)
        if not numbers:
            raise DoesNotHold(f"{who} received nothing where {expected} messages were due.")
        self.narrator.say(f"{who} received {len(numbers):,}: order {numbers[0]} … order {numbers[-1]}")

    def cut_power(self) -> None:
        self.narrator.step(f"{self.stage.power_cut_is}, then {self.stage.node} starts again")
        self.stage.power_off()
        self.stage.power_on()

    def consume_rest(self) -> None:
        self.narrator.step(f"The other {TOTAL - HALF:,} are there, each exactly once")
        self.expect_left(TOTAL - HALF)
        # Without a count: whatever comes, until nothing comes any more. A second delivery would show.
        self.receive(TOTAL - HALF, "--timeout", "2")
        self.demand(self.ledger.faults(TOTAL))
        self.expect_left(0)
        self.narrator.say(f"{TOTAL:,} were accepted, {TOTAL:,} arrived, none was lost, none came twice.")

    def redistribute(self, producer: str, consumer: str) -> None:
        """What one node holds and nobody there wants goes to the node where somebody does."""
        self.narrator.step(f"One cluster: a producer at {producer}, a consumer at {consumer}")
        self.wait_for_links()
        self.stage.mqctl("topology", "--columns", "host,node,connector,state,depth")
        self.stage.mqctl("send", ELSEWHERE, "parcel {n}", "--count", str(MOVED), "--host", producer)
        self.narrator.say(f"Nobody consumes {ELSEWHERE} anywhere, so they stay where they were sent to:")
        self.stage.mqctl("queue", "list", "--columns", "host,queue,messages")
        login = self.stage.login(consumer)
        self.narrator.say(f"A client of this project connects to {login.url} and wants them:")
        task = {"url": login.url, "user": login.user, "password": login.password, "address": ELSEWHERE,
                "count": MOVED, "time_s": QUEUE_TIME_S_MAX}  # fmt: skip
        words = self.stage.enter([sys.executable, str(ROOT / "demo" / "consumer.py")])
        said = self.narrator.run(Call(words, "python demo/consumer.py", stdin=json.dumps(task) + "\n", quiet=True))
        ledger = Ledger(MOVED, "parcel ")
        numbers = ledger.take(said.out.splitlines())
        self.demand(ledger.faults(MOVED))
        self.narrator.say(f"It received {len(numbers):,} at {consumer}: they moved there from {producer}, each once.")
        if numbers != sorted(numbers):
            raise DoesNotHold(f"They arrived at {consumer} in another order than they were sent in.")
        self.narrator.say("They came in the order in which they were sent.")
        self.stage.mqctl("queue", "list", "--columns", "host,queue,messages")

    def wait_for_links(self) -> None:
        """The node that was switched off is linked again: nobody had to do anything for it."""
        deadline_s = time.monotonic() + CLUSTER_TIME_S_MAX
        while time.monotonic() < deadline_s:
            said = self.stage.mqctl("topology", "--json", codes=(0, 3), quiet=True, hidden=True)
            rows = json.loads(said.out)["rows"]
            if len(rows) == LINKS and all(row["state"] == "up" for row in rows):
                return
            time.sleep(1)
        raise DoesNotHold(f"The nodes are not linked to each other after {CLUSTER_TIME_S_MAX:g} s.")

    def leave(self, leaver: str, heir: str) -> None:
        """A host is taken out of the cluster, and what it holds is not lost by it."""
        self.narrator.step(f"{leaver} is taken away with {LEFT:,} messages in it, which {heir} gets")
        self.stage.mqctl("send", LEFT_TO, "ticket {n}", "--count", str(LEFT), "--host", leaver)
        self.stage.mqctl("scale-down", leaver, "--to", heir, "--yes", "--write", time_s_max=LEAVE_TIME_S_MAX)
        receipts = sorted((self.narrator.place / "receipts").glob("*.txt"))
        if len(receipts) != 1:
            raise DoesNotHold(f"`mqctl scale-down` wrote {len(receipts)} receipts.")
        self.narrator.say("Its receipt, which balances, or the broker would not have been stopped:")
        for line in receipts[0].read_text().splitlines():
            self.narrator.say(f"  {line}")
        said = self.stage.mqctl("receive", LEFT_TO, "--host", heir, "--timeout", "2", quiet=True)
        ledger = Ledger(LEFT, "ticket ")
        numbers = ledger.take(said.out.splitlines())
        self.demand(ledger.faults(LEFT))
        if numbers != sorted(numbers):
            raise DoesNotHold(f"They arrived at {heir} in another order than they were sent in.")
        self.narrator.say(f"{len(numbers):,} were received at {heir}, each once and in their order.")
        self.stage.mqctl("status")

    def show_status(self) -> None:
        self.narrator.step("The state of every node")
        self.stage.mqctl("status")

    def expect_left(self, expected: int) -> None:
        """The broker's own count of what is in the queue. Outcomes of a client are on their way for a moment."""
        deadline_s = time.monotonic() + QUEUE_TIME_S_MAX
        while (left := self.left()) != expected and time.monotonic() < deadline_s:
            time.sleep(0.2)
        if left != expected:
            raise DoesNotHold(f"{self.stage.node} has {left} messages in {ADDRESS} instead of {expected}.")
        self.narrator.say(f"{self.stage.node} says that {left:,} are in the queue.")

    def left(self) -> int:
        words = ("queue", "list", "--host", self.stage.node, "--json")
        said = self.stage.mqctl(*words, quiet=True, hidden=True)
        rows = json.loads(said.out)["rows"]
        return sum(int(row["messages"]) for row in rows if row["queue"] == ADDRESS)

    def demand(self, faults: list[str]) -> None:
        if faults:
            raise DoesNotHold(f"{'; '.join(faults)}.")


def has_proton() -> bool:
    """Whether the system's own Python has the foreign client."""
    try:
        done = subprocess.run([SYSTEM_PYTHON, "-c", "import proton"], capture_output=True, check=False, timeout=30)
    except OSError:
        return False
    return done.returncode == 0
