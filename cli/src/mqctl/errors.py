"""What goes wrong on purpose. Every error says what and where, and ends with the command to try next."""

from __future__ import annotations

from mqctl.exits import Exit


class CommandError(Exception):
    """Ends the command. `attempt` is a command line (or a short instruction) that gets the user on."""

    def __init__(self, what: str, attempt: str = "", code: Exit = Exit.FAILED) -> None:
        super().__init__(what)
        self.what = what
        self.attempt = attempt
        self.code = code


class UsageError(CommandError):
    """The command line or the inventory is wrong: nothing was touched."""

    def __init__(self, what: str, attempt: str = "") -> None:
        super().__init__(what, attempt, Exit.USAGE)


class Unreachable(CommandError):
    """A host did not let us in. `host` is its inventory name."""

    def __init__(self, host: str, why: str, attempt: str = "") -> None:
        super().__init__(f"{host}: {why}", attempt)
        self.host = host
        self.why = why


class NotBegun(Unreachable):
    """A command was not begun on a host, or read nothing of what was to be written to it."""


class LoginRefused(Unreachable):
    """A host answered and did not let us in, or showed a key that is not to be trusted."""
