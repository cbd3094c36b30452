"""Waiting for so long and no longer, and saying for what it was in vain."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


@asynccontextmanager
async def at_most(timeout: float | None, in_vain: Callable[[], str]) -> AsyncIterator[None]:
    """Raises TimeoutError, with what is known by then, where the block takes longer than `timeout` seconds."""
    scope = asyncio.timeout(timeout)
    try:
        async with scope:
            yield
    except TimeoutError:
        if not scope.expired():
            raise
        raise TimeoutError(f"{in_vain()} within {timeout:g} s") from None
