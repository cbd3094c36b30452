"""What only Python's collector would find: objects that know each other, and that nobody else knows any more.

    with nothing_to_collect():
        ...

Looking costs as much as there is to look at, so a module with such tests first has left out what others have made:

    only_of_here = pytest.fixture(scope="module", autouse=True)(leave_out_what_is_there)

Whoever is inside keeps what it wants to be there afterwards. Looked for by the collector itself, which does not run
meanwhile.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SHOWN_MAX = 30


def leave_out_what_is_there() -> None:
    """The collector looks no more at what there is by now."""
    gc.collect()
    gc.freeze()


@contextmanager
def nothing_to_collect(*, of: str = "") -> Iterator[None]:
    """All that is made inside, and is of no use at the end, has gone by itself; all that has to do with objects `of`
    this package, where something else leaves what it likes."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
        left = _unreachable(of)
    finally:
        gc.set_debug(0)
        if was_enabled:
            gc.enable()
    assert not left, f"{sum(left.values())} objects that know each other: {dict(left.most_common(SHOWN_MAX))}"


def _unreachable(package: str) -> Counter[str]:
    """Who knows whom among them; nobody where none is of the package."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    found = list(gc.garbage)
    gc.garbage.clear()
    gc.set_debug(0)
    if not any(type(each).__module__.startswith(package) for each in found):
        found.clear()
    among = {id(each) for each in found}
    told = Counter(
        f"{_shown(each)} -> {_shown(other)}" for each in found for other in gc.get_referents(each) if id(other) in among
    )
    told.update(_shown(each) for each in found if not told)
    found.clear()
    gc.collect()
    return told


def _shown(each: Any) -> str:
    name: str = getattr(each, "__qualname__", None) or type(each).__name__
    return name
