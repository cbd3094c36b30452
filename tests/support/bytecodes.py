"""Work that is counted, not timed: the bytecodes of what is called, which are the same on any machine at any load."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

Result = TypeVar("Result")


class Bytecodes:
    """Counts those of everything that is called by `of`."""

    def __init__(self) -> None:
        self.count = 0

    def _trace(self, frame: FrameType, event: str, _argument: Any) -> Callable[..., Any]:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            self.count += 1
        return self._trace

    def of(self, call: Callable[[], Result]) -> Result:
        """What the call says."""
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            return call()
        finally:
            sys.settrace(before)
