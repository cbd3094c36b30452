"""Format codes of the primitive types, named as AMQP 1.0 §1.6 names them, and the limits that hold for all values."""

from __future__ import annotations

from typing import Final

DESCRIBED: Final = 0x00

NULL: Final = 0x40
TRUE: Final = 0x41
FALSE: Final = 0x42
UINT0: Final = 0x43
ULONG0: Final = 0x44
LIST0: Final = 0x45

UBYTE: Final = 0x50
BYTE: Final = 0x51
SMALLUINT: Final = 0x52
SMALLULONG: Final = 0x53
SMALLINT: Final = 0x54
SMALLLONG: Final = 0x55
BOOLEAN: Final = 0x56

USHORT: Final = 0x60
SHORT: Final = 0x61

UINT: Final = 0x70
INT: Final = 0x71
FLOAT: Final = 0x72
CHAR: Final = 0x73
DECIMAL32: Final = 0x74

ULONG: Final = 0x80
LONG: Final = 0x81
DOUBLE: Final = 0x82
TIMESTAMP: Final = 0x83
DECIMAL64: Final = 0x84

DECIMAL128: Final = 0x94
UUID: Final = 0x98

VBIN8: Final = 0xA0
STR8: Final = 0xA1
SYM8: Final = 0xA3
VBIN32: Final = 0xB0
STR32: Final = 0xB1
SYM32: Final = 0xB3

LIST8: Final = 0xC0
MAP8: Final = 0xC1
LIST32: Final = 0xD0
MAP32: Final = 0xD1
ARRAY8: Final = 0xE0
ARRAY32: Final = 0xF0

# Values that take no bytes beside their code. An array of them says how many there are in a number alone, so a peer
# could ask for four billion values in ten bytes (CVE-2026-66079): their arrays are bounded by a count of their own.
ZERO_WIDTH: Final = frozenset((NULL, TRUE, FALSE, UINT0, ULONG0, LIST0))
ZERO_WIDTH_COUNT_MAX: Final = 64

# Lists, maps, arrays and descriptors inside one another; the recursion of both directions ends here.
DEPTH_MAX: Final = 32
