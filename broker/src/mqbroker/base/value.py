"""What the objects that each message makes are built on."""

from __future__ import annotations

from typing import Any, ClassVar


class Value:
    """Equal where all fields are equal, and shown with them; a field is given once, when the value is made.

    Its subclasses name their fields in `__match_args__` and `__slots__`. Beside a NamedTuple, a native build makes and
    reads them without going through Python, and a message asks for a dozen.
    """

    __match_args__: ClassVar[tuple[str, ...]] = ()
    __slots__ = ()

    def _fields(self) -> tuple[Any, ...]:
        return tuple([getattr(self, name) for name in type(self).__match_args__])

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, Value) and self._fields() == other._fields()

    def __repr__(self) -> str:
        fields = [f"{name}={getattr(self, name)!r}" for name in type(self).__match_args__]
        return f"{type(self).__name__}({', '.join(fields)})"
