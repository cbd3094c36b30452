"""The files of an inventory once a host has left, or one instance of it: what changes in them is shown, and written
where that was said."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from mqctl.scaledown.inventory_change import ByHand, FileChange, without_host, without_instance
from mqctl.world import World

HOST_VARS: Final = "host_vars"
READ: Final = ("", ".yml", ".yaml", ".json")


def change(world: World, sources: Sequence[Path], host: str, instance: str = "", *, is_written: bool) -> dict[str, Any]:
    """Show what changes, and change it where `is_written`; the same for programs, and whether all of it is changed.
    `instance`: it alone has left of the host."""
    changes, by_hand = changes_of(sources, host, instance)
    is_changed = is_written
    for one in changes:
        world.note(one.diff.rstrip("\n"))
        if is_written:
            is_changed = put(world, Path(one.name), one.after) and is_changed
    for text in by_hand:
        world.note(text)
    if changes and not is_written:
        name = f"{host}/{instance}" if instance else host
        world.note(f"the inventory still names {name}: take it out as shown, or do the same with --write")
    return {
        "inventory": {"diff": "".join(one.diff for one in changes), "is_written": is_changed, "by_hand": by_hand}
    }  # fmt: skip


def changes_of(sources: Sequence[Path], host: str, instance: str = "") -> tuple[list[FileChange], list[str]]:
    """What changes in the files of the inventory, and what a person has to change."""
    changes, by_hand = [], []
    name = f"{host}/{instance}" if instance else host
    own = _own_files(sources, host) if instance else []
    for source in (*sources, *own):
        if not source.is_file():
            by_hand.append(f"{source}: take {name} out of it")
            continue
        try:
            text = source.read_text(encoding="utf-8")
            if instance:
                changed = without_instance(text, host, instance, source.name, is_own=source in own)
            else:
                changed = without_host(text, host, source.name)
        except UnicodeDecodeError:
            by_hand.append(f"{source} is a program; take {name} out by hand")
            continue
        except ByHand as why:
            by_hand.append(f"{source}: {why}; take {name} out by hand")
            continue
        if changed != text and source in own and _is_link(source):
            by_hand.append(f"{source} is a link, and may be of other hosts as well; take {name} out by hand")
        elif changed != text:
            changes.append(FileChange(str(source), text, changed))
    if not changes and not by_hand:
        what = f"gives {host} mq_instances of its own" if instance else f"names {host} by itself"
        by_hand.append(f"no file of the inventory {what}; take {name if instance else 'it'} out by hand")
    return changes, by_hand


def _own_files(sources: Sequence[Path], host: str) -> list[Path]:
    """Where Ansible looks for variables of the host beside files of an inventory: what is there goes before these."""
    places = [each.parent / HOST_VARS for each in dict.fromkeys(sources) if each.is_file()]
    names = [f"{host}{end}" for end in ("", ".yml", ".yaml", ".json")]
    files = [place / name for place in dict.fromkeys(places) for name in names]
    inside = [each for one in files if one.is_dir() for each in sorted(one.rglob("*")) if _is_read(each, one)]
    return [one for one in (*files, *inside) if one.is_file()]


def _is_read(file: Path, folder: Path) -> bool:
    """Whether Ansible reads it: neither what is hidden nor what an editor has left."""
    is_hidden = any(part.startswith(".") or part.endswith("~") for part in file.relative_to(folder).parts)
    return not is_hidden and file.suffix in READ


def _is_link(file: Path) -> bool:
    """Whether it, or the folder of the host that it is in, leads elsewhere."""
    end = next(at for at, part in enumerate(reversed(file.parts)) if part == HOST_VARS)
    place = Path(*file.parts[: len(file.parts) - end])
    return file.resolve() != place.resolve() / file.relative_to(place)


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
