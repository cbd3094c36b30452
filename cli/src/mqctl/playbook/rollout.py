"""What the commands that run the playbook `rollout` have in common."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from mqctl.certificates.folder import Folder
from mqctl.errors import CommandError, UsageError
from mqctl.inventory import Host
from mqctl.plan.plan import BY_HAND, Change
from mqctl.playbook.run import Play
from mqctl.world import World

# The fact that the last task of the playbook sets on a host that has got all of it.
MARK = "mq_rollout_done"


@contextlib.contextmanager
def untouched(world: World) -> Iterator[None]:
    """Ctrl-C in here ends what has changed nothing yet, unless an operation of this run is under way already."""
    try:
        yield
    except KeyboardInterrupt:
        if world.operation is None:
            world.note("interrupted: nothing was changed on any host")
        raise


def batch_of(text: str) -> str:
    """What Ansible's `serial` takes: a number of hosts or a percentage. Empty: the playbook's own."""
    number = text.removesuffix("%")
    is_right = number.isascii() and number.isdigit() and int(number) >= 1
    if text and not (is_right and (int(number) <= 100 or not text.endswith("%"))):
        raise UsageError(
            f"--batch {text}: that is neither a number of hosts nor a percentage", "--batch 2 or --batch 25%"
        )
    return text


def require_no_hand(changes: Iterable[Change]) -> None:
    """Refuses what roles would refuse in the middle: what a person has to see to first. Raises CommandError."""
    by_hand = [f"{one.host}: {one.what}: {one.before}, {one.action}" for one in changes if one.action in BY_HAND]
    if by_hand:
        raise CommandError(
            f"{'; '.join(by_hand)}; nothing was changed on any host",
            "mqctl plan, when that is put right, or leave the host out with --limit",
        )


def rollout_play(
    folder: Folder, bundle: str, hosts: Iterable[Host], batch: str, *, is_canary_first: bool = False
) -> Play:
    """The playbook for these hosts. `folder`: the certificates that they are to have."""
    variables = {
        "mq_bundle": bundle, "mq_tls_directory": str(folder.path), "rollout_batch": batch,
        "rollout_canary": is_canary_first,
    }  # fmt: skip
    return Play("rollout", variables, ",".join(one.name for one in hosts), mark=MARK)
