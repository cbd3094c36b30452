"""Asks before something is changed. Scripts say --yes; without a terminal and without --yes nothing happens."""

from __future__ import annotations

from mqctl.errors import CommandError, UsageError
from mqctl.world import World


def yes(world: World, question: str, *, is_sure: bool) -> None:
    """Go on after y, or with --yes."""
    if _is_settled(world, is_sure):
        return
    if world.err.input(f"{question} [y/N] ", markup=False).strip().lower() not in {"y", "yes"}:
        raise CommandError("not confirmed, nothing was changed")


def name(world: World, question: str, expected: str, *, is_sure: bool) -> None:
    """Go on after the name of the cluster, or with --yes: for what cannot be taken back."""
    if _is_settled(world, is_sure):
        return
    if world.err.input(f"{question} Type the name of the cluster to go on: ", markup=False).strip() != expected:
        raise CommandError("that is not the name of the cluster, nothing was changed")


def _is_settled(world: World, is_sure: bool) -> bool:
    if is_sure:
        return True
    if not world.is_interactive:
        raise UsageError("there is no terminal to ask on", "the same command with --yes")
    return False
