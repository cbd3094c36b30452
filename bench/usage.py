"""What a process has used, from `/proc`: CPU of all its threads, resident memory."""

from __future__ import annotations

import os
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """User and system time since the start of the process, in steps of a tick (10 ms)."""
    return parse_cpu_s(Path(f"/proc/{pid}/stat").read_text())


def parse_cpu_s(stat: str) -> float:
    """Fields 14 and 15 of proc(5); the name in field 2 may hold blanks and brackets, so count from its end."""
    fields = stat[stat.rindex(")") + 2 :].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def rss_mb(pid: int) -> float:
    """Resident memory in megabytes (10⁶ bytes)."""
    return parse_rss_mb(Path(f"/proc/{pid}/status").read_text())


def peak_mb(pid: int) -> float:
    """The most that was resident since the start of the process, in megabytes (10⁶ bytes)."""
    return parse_rss_mb(Path(f"/proc/{pid}/status").read_text(), "VmHWM")


def parse_rss_mb(status: str, name: str = "VmRSS") -> float:
    """The line of that name, which the kernel gives in KiB."""
    for line in status.splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise ValueError(f"no {name} line: the process has ended")
