"""Secrets of the inventory taken out of whatever is printed: the second lock, behind `no_log` in the roles."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

SECRET_NAME = re.compile(r"pass(word|phrase|wd)?$|_pass$|secret|token|private_key$", re.IGNORECASE)
SECRET_CHARACTERS_MIN = 4
HIDDEN = "********"


def secrets_of(value: Any, *, is_secret: bool = False) -> Iterator[str]:
    """Every text in a variable whose name says that it is a secret, however deep."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from secrets_of(item, is_secret=is_secret or bool(SECRET_NAME.search(str(name))))
    elif isinstance(value, list):
        for item in value:
            yield from secrets_of(item, is_secret=is_secret)
    elif is_secret and isinstance(value, str | int) and not isinstance(value, bool):
        yield str(value)


class Redactor:
    """Replaces known secrets in texts, also where JSON has escaped them."""

    def __init__(self, variables: Iterable[Mapping[str, Any]]) -> None:
        known = {one for each in variables for one in secrets_of(each) if len(one) >= SECRET_CHARACTERS_MIN}
        known |= {json.dumps(one)[1:-1] for one in known}
        longest_first = sorted(known, key=lambda one: (-len(one), one))
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if known else None

    def __call__(self, text: str) -> str:
        """The text without secrets."""
        return self._pattern.sub(HIDDEN, text) if self._pattern else text
