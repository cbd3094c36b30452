"""`mqctl rollout`."""

from __future__ import annotations

from dataclasses import dataclass

from mqctl.rollout.rollout_run import Rolling, RollingOptions, roll_out
from mqctl.world import World

ROLLOUT = Rolling("mqctl rollout")


@dataclass(frozen=True, kw_only=True)
class Options(RollingOptions):
    """Which hosts, with which bundle, and what has to hold before anything is changed."""


def run(world: World, options: Options) -> int:
    """Bring the hosts to what the inventory wants: show the plan, ask, run the playbook, look at every node.

    Where every host is as the last rollout left it, and everything that went into that is the same, the playbook is
    left out: files, modes and owners are compared by digest. `--full` runs it all the same.

    Nothing begins where clients would not be served while a batch is away; `--force` says what is given up. A host that
    is not reached for the plan is left out, as nobody has asked whom it serves.

    Between batches of brokers that are restarted, the links that stood have to stand again, and a message has to cross
    each (`mqctl cluster canary`); at the end of all. Where they do not, the same command waits for them again, and
    restarts no other host before; `--force` gives them up.

    Managed certificates that are missing or end soon are made before (`mqctl tls issue`).

    Each host ends with a state: ok; refused, with all reasons, and then nothing was changed on any host; failed;
    unreachable; stopped, where the rollout ended before that host was done.

    Ctrl-C ends it and says how far each host has come; run again it goes on.

    Exit code 1 if a host failed or was refused or stopped, 3 if hosts were only not reached or one could not be given
    back, 4 if a broker still reads its journal, 130 after Ctrl-C.
    """
    return roll_out(world, options, ROLLOUT)
