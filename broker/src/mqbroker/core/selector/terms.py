"""What selectors are made of: closures from a message to a value, in the logic of three values.

A value is True, False, a number, a text, bytes that nothing can be asked of, or None: NULL as a value is UNKNOWN as a
truth. Closures for chains (AND, OR, +, *) loop over their parts, so calls nest as deep as brackets do and no deeper.
What needs no message is checked here and refused; what only a message shows gives FALSE or UNKNOWN and never raises:

    comparison of different types            FALSE
    order of texts or of booleans            FALSE
    arithmetic with what is no number        UNKNOWN
    division by zero                         UNKNOWN
    AND, OR, NOT of what is no boolean       UNKNOWN

Source: Jakarta Messaging 3.1, 3.8.1.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from mqbroker.base.errors import Refused
from mqbroker.core.selector.like import compile_like


class Message(Protocol):
    """Whatever has values under names."""

    def value_of(self, name: str) -> Any:
        """The value of a header field or property, None where there is none."""


TermValue = Any
Truth = bool | None
Number = int | float
Evaluate = Callable[[Message], TermValue]

ANY, TRUTH, NUMBER, TEXT = "a name", "a condition", "a number", "a text"

NO_NAMES: Final[frozenset[str]] = frozenset()
NO_TEXTS: Final[frozenset[str]] = frozenset()


class Term(NamedTuple):
    """Part of a selector: what it can give (`kind`), how, where it starts, and the names in it.

    `required` are texts one of which is a value of each message of which this is TRUE; where it is empty nothing is
    known of that. `text` is that of a constant.
    """

    kind: str
    evaluate: Evaluate
    column: int
    names: frozenset[str] = NO_NAMES
    is_name: bool = False
    required: frozenset[str] = NO_TEXTS
    text: str | None = None


def refusal(column: int, why: str) -> Refused:
    """`column` counts characters from 1."""
    return Refused("amqp:invalid-field", f"selector, column {column}: {why}")


def constant(kind: str, value: TermValue, column: int) -> Term:
    return Term(kind, lambda message: value, column, text=value if kind == TEXT else None)


# Fields that a selector must not ask for: they differ between deliveries, or are no text (3.8.1.1).
_UNSELECTABLE: Final = {
    "JMSRedelivered": "JMSXDeliveryCount > 1 says the same",
    "JMSDestination": "AMQAddress is the address that the message was sent to",
    "JMSReplyTo": "a property of your own can carry it",
}


def name(identifier: str, column: int) -> Term:
    """The value of a field or property."""
    instead = _UNSELECTABLE.get(identifier)
    if instead is not None:
        raise refusal(column, f"{identifier} cannot be asked for; {instead}")
    return Term(ANY, lambda message: message.value_of(identifier), column, frozenset((identifier,)), True)


# -- truth ------------------------------------------------------------------------------------------------------------


def _truth(term: Term, what: str) -> Callable[[Message], Truth]:
    """A condition; a name counts if its value is a boolean."""
    if term.kind not in (TRUTH, ANY):
        raise refusal(term.column, f"{what} a condition, such as a = 1, and {term.kind} is none")
    evaluate = term.evaluate
    if term.kind == TRUTH:
        return evaluate

    def truth(message: Message) -> Truth:
        value = evaluate(message)
        return value if isinstance(value, bool) else None

    return truth


def condition(term: Term) -> Evaluate:
    """The whole of a selector, as a function of a message; refused where it is no condition."""
    return _truth(term, "a selector is")


def conjunction(terms: Sequence[Term]) -> Term:
    """AND: FALSE if one is, else UNKNOWN if one is."""
    required = min((term.required for term in terms if term.required), key=len, default=NO_TEXTS)
    return _chain(terms, "AND", False)._replace(required=required)


def disjunction(terms: Sequence[Term]) -> Term:
    """OR: TRUE if one is, else UNKNOWN if one is."""
    each_requires = all(term.required for term in terms)
    required = NO_TEXTS.union(*(term.required for term in terms)) if each_requires else NO_TEXTS
    return _chain(terms, "OR", True)._replace(required=required)


def _chain(terms: Sequence[Term], word: str, decisive: bool) -> Term:
    parts = [_truth(term, f"{word} joins") for term in terms]

    def evaluate(message: Message) -> Truth:
        result: Truth = not decisive
        for part in parts:
            truth = part(message)
            if truth is decisive:
                return decisive
            if truth is None:
                result = None
        return result

    return Term(TRUTH, evaluate, terms[0].column, _names(terms))


def negation(term: Term, column: int) -> Term:
    """NOT: UNKNOWN stays UNKNOWN."""
    part = _truth(term, "NOT negates")

    def evaluate(message: Message) -> Truth:
        truth = part(message)
        return None if truth is None else not truth

    return Term(TRUTH, evaluate, column, term.names)


def _names(terms: Sequence[Term]) -> frozenset[str]:
    return NO_NAMES.union(*(term.names for term in terms))


# -- comparison -------------------------------------------------------------------------------------------------------

_RELATIONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def comparison(sign: str, left: Term, right: Term) -> Term:
    """One of = <> < <= > >=, of whatever kinds; only numbers have an order."""
    is_order = sign not in ("=", "<>")
    if is_order:
        _check_ordered((left, right), sign)
    names = left.names | right.names
    required = _equal_text(left, right) if sign == "=" else NO_TEXTS
    return Term(TRUTH, _compared(sign, left.evaluate, right.evaluate), left.column, names, required=required)


def _equal_text(left: Term, right: Term) -> frozenset[str]:
    """The text that a property is compared with."""
    for one, other in ((left, right), (right, left)):
        if one.is_name and other.text is not None:
            return frozenset((other.text,))
    return NO_TEXTS


def between(term: Term, low: Term, high: Term) -> Term:
    """low <= term AND term <= high."""
    _check_ordered((term, low, high), "BETWEEN")
    above = comparison(">=", term, low)
    return conjunction((above, comparison("<=", term, high)))


def outside(term: Term, low: Term, high: Term) -> Term:
    """NOT BETWEEN, which is term < low OR term > high and so FALSE for what is no number."""
    _check_ordered((term, low, high), "BETWEEN")
    below = comparison("<", term, low)
    return disjunction((below, comparison(">", term, high)))


def _check_ordered(terms: Sequence[Term], word: str) -> None:
    for term in terms:
        if term.kind not in (NUMBER, ANY):
            raise refusal(term.column, f"{word} compares numbers; {term.kind} can only be compared with = and <>")


def _compared(sign: str, left: Evaluate, right: Evaluate) -> Evaluate:
    relate = _RELATIONS[sign]
    kinds = (NUMBER, TRUTH, TEXT) if sign in ("=", "<>") else (NUMBER,)

    def evaluate(message: Message) -> Truth:
        one, other = left(message), right(message)
        if one is None or other is None:
            return None
        kind = _kind_of(one)
        if kind != _kind_of(other) or kind not in kinds:
            return False
        if kind == NUMBER:
            one, other = _promoted(one, other)
        return relate(one, other)

    return evaluate


def _kind_of(value: TermValue) -> str:
    if isinstance(value, str):
        return TEXT
    if isinstance(value, bool):
        return TRUTH
    return NUMBER if isinstance(value, int | float) else ANY


def _promoted(one: Number, other: Number) -> tuple[Number, Number]:
    """Java's numeric promotion: where one is approximate, both are. Exact ones have 64 bits, so all have a double."""
    if isinstance(one, float) or isinstance(other, float):
        return float(one), float(other)
    return one, other


# -- tests of one name ------------------------------------------------------------------------------------------------


def membership(term: Term, texts: frozenset[str]) -> Term:
    """`IN` over a list of texts (JMS 2.0 §3.8.1.2); UNKNOWN where the value is NULL."""
    return _test(term, "IN", lambda value: value in texts)._replace(required=texts)


def likeness(term: Term, pattern: str, escape: str | None, column: int) -> Term:
    """LIKE, for texts; `column` is that of the pattern."""
    matches = compile_like(pattern, escape)
    if matches is None:
        raise refusal(column, f"the pattern ends with its escape character; write {escape}{escape} to match {escape}")
    return _test(term, "LIKE", matches)


def _test(term: Term, word: str, passes: Callable[[str], bool]) -> Term:
    _check_name(term, word)
    evaluate = term.evaluate

    def test(message: Message) -> Truth:
        value = evaluate(message)
        return None if value is None else isinstance(value, str) and passes(value)

    return Term(TRUTH, test, term.column, term.names)


def nullness(term: Term) -> Term:
    """`IS NULL` (JMS 2.0 §3.8.1.2): TRUE or FALSE, never UNKNOWN."""
    _check_name(term, "IS NULL")
    evaluate = term.evaluate
    return Term(TRUTH, lambda message: evaluate(message) is None, term.column, term.names)


def _check_name(term: Term, word: str) -> None:
    if not term.is_name:
        raise refusal(term.column, f"the name of a property must stand before {word}")


# -- arithmetic -------------------------------------------------------------------------------------------------------

LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1


def _exact_quotient(one: int, other: int) -> int:
    quotient = abs(one) // abs(other)
    return quotient if (one < 0) == (other < 0) else -quotient


def _quotient(one: Any, other: Any) -> Number | None:
    if not other:
        return None
    return _exact_quotient(one, other) if isinstance(one, int) else one / other


_OPERATIONS: Final[dict[str, Callable[[Any, Any], Number | None]]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": _quotient,
}  # fmt: skip


def arithmetic(first: Term, rest: Sequence[tuple[str, Term]]) -> Term:
    """A chain of operators of the same rank, from the left."""
    terms = (first, *(term for _, term in rest))
    for term in terms:
        _check_number(term, rest[0][0])
    start = first.evaluate
    steps = [(_OPERATIONS[sign], term.evaluate) for sign, term in rest]

    def evaluate(message: Message) -> Number | None:
        total = _number(start(message))
        for operate, term in steps:
            other = _number(term(message))
            if total is None or other is None:
                return None
            total = _held(operate(*_promoted(total, other)))
        return total

    return Term(NUMBER, evaluate, first.column, _names(terms))


def negative(term: Term, column: int) -> Term:
    """The unary minus of a number; NULL where that is."""
    _check_number(term, "-")
    evaluate = term.evaluate

    def negated(message: Message) -> Number | None:
        value = _number(evaluate(message))
        return None if value is None else _held(-value)

    return Term(NUMBER, negated, column, term.names)


def positive(term: Term, column: int) -> Term:
    """The unary plus: the same, and a number."""
    _check_number(term, "+")
    evaluate = term.evaluate
    return Term(NUMBER, lambda message: _number(evaluate(message)), column, term.names)


def _check_number(term: Term, sign: str) -> None:
    if term.kind not in (NUMBER, ANY):
        raise refusal(term.column, f"{sign} calculates with numbers, and {term.kind} is none")


def _number(value: TermValue) -> Number | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _held(result: Number | None) -> Number | None:
    """An exact result that no long can hold goes on as a double, so numbers stay small however long the chain is."""
    if isinstance(result, int) and not LONG_MIN <= result <= LONG_MAX:
        return float(result)
    return result
