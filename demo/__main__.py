"""`python -m demo`: chooses the stage, tells the story, tidies up. Exit code 0 if every step held."""

from __future__ import annotations

import os
import signal
import sys
import time

from demo import rack
from demo.loopback import Loopback
from demo.narrator import DoesNotHold, Narrator
from demo.stage import ROOT, Stage
from demo.story import Story

# Names the rack and the folder of this demo, so that two of them do not meet.
NAME = os.environ.get("RACK_NAME") or "demo"
PLACE = ROOT / ".build" / "demo" / NAME


def main() -> int:
    # Told to end, it takes down what it made, as for Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    narrator = Narrator(PLACE)
    PLACE.mkdir(mode=0o700, parents=True, exist_ok=True)
    stage = choose(narrator)
    code = tell(narrator, stage)
    finish(narrator, stage, is_kept=bool(os.environ.get("KEEP")))
    took_s = time.monotonic() - narrator.started_s
    print(f"\ndemo: {'every step held' if code == 0 else 'failed'} ({took_s:.0f} s)", flush=True)
    return code


def choose(narrator: Narrator) -> Stage:
    """Hosts if they can be booted here; else loopback, and why."""
    if os.environ.get("DEMO_FORCE_DEV"):
        reasons = ["DEMO_FORCE_DEV is set."]
    else:
        reasons = rack.why_not(narrator)
    if not reasons:
        return rack.Rack(narrator, NAME)
    print("demo: no hosts are booted:", *reasons, "The messages' part of the story is told on loopback.", sep="\n  ")
    return Loopback(narrator)


def tell(narrator: Narrator, stage: Stage) -> int:
    try:
        stage.clear()
        Story(narrator, stage).tell()
    except DoesNotHold as fault:
        print(f"\ndemo: step {narrator.number} does not hold: {fault}", file=sys.stderr, flush=True)
        return 1
    except KeyboardInterrupt:
        print(f"\ndemo: interrupted in step {narrator.number}", file=sys.stderr, flush=True)
        return 130
    return 0


def finish(narrator: Narrator, stage: Stage, *, is_kept: bool) -> None:
    """Take everything down, or say how to reach it."""
    if is_kept:
        narrator.step("Everything stays up (KEEP=1). From the checkout:")
        for line in stage.how_to_reach():
            narrator.say(line)
        return
    narrator.step("Tear-down")
    try:
        stage.tear_down()
    except DoesNotHold as fault:
        print(f"demo: {fault}", file=sys.stderr, flush=True)
        return
    narrator.say("Nothing of the demo is left but what the next one is faster with: .venv, and the image of the hosts.")


if __name__ == "__main__":
    sys.exit(main())
