"""Work that is counted, not timed: the bytecodes of what is called, which are the same on any machine at any load."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

Result = TypeVar("Result")


class Bytecodes:
    """Counts those of everything that is called by `of`."""

    def __init__(self) -> None:
        self.count = 0

    def of(self, call: Callable[[], Result]) -> Result:
        """What the call says."""
        count = 0

        # Called at each bytecode, so it does as little as it can: a frame keeps its function where that returns None.
        def count_one(_frame: FrameType, event: str, _argument: Any) -> None:
            nonlocal count
            if event == "opcode":
                count += 1

        def enter(frame: FrameType, _event: str, _argument: Any) -> Callable[..., Any]:
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            return count_one

        # What the collector finalizes, somebody else has left behind.
        before, is_collecting = sys.gettrace(), gc.isenabled()
        gc.disable()
        sys.settrace(enter)
        try:
            return call()
        finally:
            sys.settrace(before)
            self.count += count
            if is_collecting:
                gc.enable()
