"""The files of an inventory once a host has left: what changes in them is shown, and written where that was said."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mqctl.scaledown.inventory_change import ByHand, FileChange, without_host
from mqctl.world import World


def change(world: World, sources: Sequence[Path], host: str, *, is_written: bool) -> dict[str, Any]:
    """Show what changes, and change it where `is_written`; the same for programs, and whether all of it is changed."""
    changes, by_hand = changes_of(sources, host)
    is_changed = is_written
    for one in changes:
        world.note(one.diff.rstrip("\n"))
        if is_written:
            is_changed = put(world, Path(one.name), one.after) and is_changed
    for text in by_hand:
        world.note(text)
    if changes and not is_written:
        world.note(f"the inventory still names {host}: take it out as shown, or do the same with --write")
    return {
        "inventory": {"diff": "".join(one.diff for one in changes), "is_written": is_changed, "by_hand": by_hand}
    }  # fmt: skip


def changes_of(sources: Sequence[Path], host: str) -> tuple[list[FileChange], list[str]]:
    """What changes in the files of the inventory, and what a person has to change."""
    changes, by_hand = [], []
    for source in sources:
        if not source.is_file():
            by_hand.append(f"{source}: take {host} out of it")
            continue
        try:
            text = source.read_text(encoding="utf-8")
            changed = without_host(text, host, source.name)
        except UnicodeDecodeError:
            by_hand.append(f"{source} is a program; take {host} out by hand")
            continue
        except ByHand as why:
            by_hand.append(f"{source}: {why}; take {host} out by hand")
            continue
        if changed != text:
            changes.append(FileChange(str(source), text, changed))
    if not changes and not by_hand:
        by_hand.append(f"no file of the inventory names {host} by itself; take it out by hand")
    return changes, by_hand


def put(world: World, file: Path, text: str) -> bool:
    """The new text in the place of the old one, whole or not at all; whether it is. The host has left either way."""
    place = file.resolve()
    beside = place.with_name(f".{place.name}.new")
    try:
        beside.write_text(text, encoding="utf-8")
        shutil.copymode(place, beside)
        beside.replace(place)
    except OSError as fault:
        beside.unlink(missing_ok=True)
        world.note(f"{file}: {fault.strerror}; it is as it was: change it as shown")
        return False
    world.note(f"changed {file}")
    return True
