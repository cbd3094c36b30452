"""CRC-32 as zlib has it (polynomial 0xEDB88320), by isal where that is installed: the same sums, eight times as fast.

Each durable message is summed when it is planned and when it is written, which was a tenth of its cost.
Source: docs/adr/0004-libraries.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

try:
    from isal.isal_zlib import crc32 as _crc32
except ImportError:
    from zlib import crc32 as _crc32

# The sum of bytes; of such as follow others, whose sum is the second argument.
crc32: Final[Callable[..., int]] = _crc32
