"""Exit codes, the same for every command. The reference in docs/reference/mqctl.md is written from this table."""

from __future__ import annotations

import enum


class Exit(enum.IntEnum):
    """The exit codes of commands, for the shell and for scripts."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    DEGRADED = 3
    RUNNING = 4
    INTERRUPTED = 130


class NagiosCode(int):
    """The exit code of a command that speaks to Nagios: 0 ok, 1 warning, 2 critical, 3 unknown."""


NAGIOS_UNKNOWN = NagiosCode(3)
MEANINGS = {
    Exit.DONE: "done, nothing to report",
    Exit.FAILED: "failed; the last line on standard error says what, where and which command to try next",
    Exit.USAGE: "the command line or the inventory is wrong; nothing was touched",
    Exit.DEGRADED: "degraded (hosts do not answer or do not run), differences (`plan`) or damage (`journal check`)",
    Exit.RUNNING: "still running: the time was up before the end was seen; look again",
    Exit.INTERRUPTED: "interrupted by Ctrl-C",
}
