"""Exit codes of `mqbroker`. Scripts and the unit file rely on them."""

from __future__ import annotations

from typing import Final

DONE: Final = 0
FAILED: Final = 1
USAGE: Final = 2
DIFFERENT: Final = 3
IDENTITY: Final = 5
UNUSABLE: Final = 6
BUG: Final = 70
DISK: Final = 74

EXPLAINED = f"""exit codes:
  {DONE}   done
  {FAILED}   failed; standard error says what, where and what to do
  {USAGE}   wrong usage
  {DIFFERENT}   differences found (config diff: a restart or reload is needed)
  {IDENTITY}   the data directory belongs to another machine or path (identity adopt, identity new)
  {UNUSABLE}   what is stored is damaged or of another release: no further start would mend that
  {BUG}  the broker stopped itself because an invariant of its own was broken
  {DISK}  the broker stopped itself because the disk failed
"""
