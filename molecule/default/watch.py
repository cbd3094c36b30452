"""Looks at the list of processes again and again, as any local user could, and notes each secret word that it sees.

    watch.py FOLDER WORD

FOLDER/words has a word per line, FOLDER/seen gets those that were seen. WORD is seen in any case, as it stands in the
command line of this process: that shows that it looks. It reads by itself and without detours, since what starts other
programs at each look takes a third of a processor from whatever is being tested, and what makes objects of paths a
thirtieth.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

LOOK_S = 0.05


def main(folder: Path, own: str) -> None:
    words = {own.encode(), *folder.joinpath("words").read_bytes().split()}
    with folder.joinpath("seen").open("ab", buffering=0) as seen:
        while True:
            shown = b"\n".join(command_line(name) for name in os.listdir("/proc") if name.isdigit())
            for word in {word for word in words if word in shown}:
                words.remove(word)
                seen.write(word + b"\n")
            time.sleep(LOOK_S)


def command_line(process: str) -> bytes:
    """What anybody may read of the process with that number; nothing where it has ended."""
    try:
        with open(f"/proc/{process}/cmdline", "rb", buffering=0) as file:
            return file.read()
    except (FileNotFoundError, ProcessLookupError):
        return b""


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
