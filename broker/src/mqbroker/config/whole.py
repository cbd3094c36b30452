"""Whether a `broker.toml` is all there, or what a full disk or a writer who is not done left of it.

Two signs. A file may say at its beginning how it ends, as what the role writes does: then it is whole with that line as
its last, and nothing else. Of any other file a reload knows the text in force: what is nothing but the beginning of
that is taken for cut off.
"""

from __future__ import annotations

from typing import Final

from mqbroker.base.errors import ConfigFault

END: Final = "# end of broker.toml"
PROMISE: Final = f'# Without its last line, "{END}", this file is taken for cut off.'


def fault_of(text: str) -> ConfigFault | None:
    """What is wrong with a file that says how it ends."""
    lines = [line.rstrip() for line in text.rstrip().splitlines()]
    if PROMISE not in lines or lines[-1] == END:
        return None
    why = f"says that its last line is {END!r}, and it is not: the file is cut off; write it again, or add the line"
    return ConfigFault("file", why)


def cut_fault_of(text: str, in_force: str) -> ConfigFault | None:
    """What is wrong with a file at a reload, beside the text in force. Lines that say nothing do not count."""
    lines, before = _saying(text), _saying(in_force)
    # Lines that end what is in force are there: so somebody has taken away others on purpose.
    if len(lines) >= len(before) or lines != before[: len(lines)] or text.rstrip().endswith(END):
        return None
    lost = before[len(lines)]
    why = (
        f"is the beginning of what is in force and ends before {lost!r}: it may be cut off; if that is meant, "
        f"write {END!r} as its last line, or restart the broker"
    )
    return ConfigFault("file", why)


def _saying(text: str) -> list[str]:
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]
