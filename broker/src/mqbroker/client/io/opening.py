"""What `connect`, `sender` and `receiver` return: awaited it is the thing, in `async with` it is closed at the end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar


class Closable(Protocol):
    """What can be opened here. `abandon` is how an error leaves it: without waiting for what is under way."""

    async def close(self) -> None: ...
    async def abandon(self) -> None: ...


T = TypeVar("T", bound=Closable)


class Opening(Generic[T]):
    """Something that opens when it is awaited or entered; nothing happens before."""

    def __init__(self, make: Callable[[], Awaitable[T]]) -> None:
        self._make = make
        self._made: T | None = None

    async def _open(self) -> T:
        return await self._make()

    def __await__(self) -> Generator[Any, None, T]:
        return self._open().__await__()

    async def __aenter__(self) -> T:
        self._made = await self._open()
        return self._made

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        made, self._made = self._made, None
        if made is None:
            return
        if kind is None:
            await made.close()
        else:
            await made.abandon()
