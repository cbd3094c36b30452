"""How much code runs, counted and not timed: that is steady, whatever else the machine has to do."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


class Work:
    """Counts bytecodes of what is called within it."""

    def __init__(self) -> None:
        self.bytecodes = 0

    def _trace(self, frame: FrameType, event: str, _argument: Any) -> Callable[..., Any]:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            self.bytecodes += 1
        return self._trace

    def of(self, call: Callable[[], Any]) -> Any:
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            return call()
        finally:
            sys.settrace(before)
