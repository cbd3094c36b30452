"""Selectors: which messages a consumer or a queue wants, in the language of Jakarta Messaging.

    color = 'blue' AND (weight BETWEEN 1 AND 2.5 OR name LIKE 'ab%') AND JMSPriority > 4

`selector_grammar` reads the text and says what is wrong with it, `selector_terms` makes closures and has the rules of
types and truth. A selector has no state, so all who ask for the same text may share one. Source: Jakarta Messaging 3.1,
3.8.1.
"""

from __future__ import annotations

from typing import Final

from mqbroker.base.errors import PeerFault
from mqbroker.core.selector.grammar import DEPTH_MAX, SELECTOR_SIZE_MAX, WORDS_MAX, parse
from mqbroker.core.selector.terms import NO_TEXTS, Evaluate, Message, condition

__all__ = [
    "CACHED_TEXT_SIZE_MAX",
    "CACHE_SIZE_MAX",
    "DEPTH_MAX",
    "SELECTOR_SIZE_MAX",
    "WORDS_MAX",
    "Selector",
    "compile_selector",
]

# Closures take some 400 bytes for each operator, so all that is kept for those to come stays below 16 MiB.
CACHE_SIZE_MAX: Final = 128
CACHED_TEXT_SIZE_MAX: Final = 512  # characters

_compiled: dict[str, Selector] = {}


class Selector:
    """A compiled selector. `names` are those of the header fields and properties that it asks for.

    `required` are texts one of which is the value of one of these where it matches; empty where that is not known.
    """

    __slots__ = ("_evaluate", "names", "required", "text")

    def __init__(
        self, text: str, evaluate: Evaluate, names: frozenset[str], required: frozenset[str] = NO_TEXTS
    ) -> None:
        self.text = text
        self.names = names
        self.required = required
        self._evaluate = evaluate

    def matches(self, message: Message) -> bool:
        """True where the selector is TRUE; FALSE, UNKNOWN and messages that cannot be read are no match."""
        try:
            return self._evaluate(message) is True
        except PeerFault:
            return False

    def __repr__(self) -> str:
        return f"Selector({self.text!r})"


def compile_selector(text: str) -> Selector:
    """The selector that `text` says. Raises Refused amqp:invalid-field with the column of what is wrong."""
    known = _compiled.get(text)
    if known is not None:
        return known
    term = parse(text)
    selector = Selector(text, condition(term), term.names, term.required)
    if len(text) <= CACHED_TEXT_SIZE_MAX:
        if len(_compiled) >= CACHE_SIZE_MAX:
            _compiled.clear()
        _compiled[text] = selector
    return selector
