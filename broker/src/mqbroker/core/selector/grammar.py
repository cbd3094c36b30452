"""The syntax of selectors: text to one Term, and what to say where it is wrong.

Bounds: a selector's size, its number of words, and how deep its brackets are, checked before anything is parsed. A
word costs the parser some 10 µs, in which nobody else is served. Chains of operators and of signs become one term each,
so brackets alone nest. The parser (lark, LALR) keeps a stack of its own and calls `_Build` while it reads; it is
imported and made at the first selector. Source: Jakarta Messaging 3.1, 3.8.1. As in Artemis, names that are no
identifiers can be written in double quotes: "m.x-opt-delivery-time".
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from mqbroker.core.selector import terms as terms
from mqbroker.core.selector.literals import number, unquoted
from mqbroker.core.selector.terms import Term, refusal

if TYPE_CHECKING:
    from lark import Lark, Token, UnexpectedInput

SELECTOR_SIZE_MAX: Final = 4096  # characters
DEPTH_MAX: Final = 64
WORDS_MAX: Final = 512  # names, literals, operators, brackets and commas

# A word ends where no more of it could follow: `ANDROID` is a name and `5a` a number that is wrong.
_GRAMMAR: Final = r"""
?start: either
?either: both
    | both (_OR both)+                          -> either
?both: not
    | not (_AND not)+                           -> both
?not: test
    | NOT+ test                                 -> negated
?test: sum
    | sum (EQUAL | ORDER) sum                   -> compared
    | sum NOT? _BETWEEN sum _AND sum            -> between
    | sum NOT? _IN "(" TEXT ("," TEXT)* ")"     -> contained
    | sum NOT? _LIKE TEXT (_ESCAPE TEXT)?       -> like
    | sum _IS NOT? _NULL                        -> null
?sum: product
    | product (SIGN product)+                   -> chained
?product: signed
    | signed (TIMES signed)+                    -> chained
?signed: atom
    | SIGN+ atom                                -> signed
?atom: "(" either ")"
    | NAME                                      -> name
    | QUOTED                                    -> quoted
    | TEXT                                      -> text
    | NUMBER                                    -> number
    | TRUE                                      -> true
    | FALSE                                     -> false

EQUAL: /=|<>/
ORDER: /[<>]=|<(?!>)|>/
SIGN: "+" | "-"
TIMES: "*" | "/"
_AND: /AND(?![\w$.])/i
_OR: /OR(?![\w$.])/i
NOT: /NOT(?![\w$.])/i
_BETWEEN: /BETWEEN(?![\w$.])/i
_IN: /IN(?![\w$.])/i
_LIKE: /LIKE(?![\w$.])/i
_ESCAPE: /ESCAPE(?![\w$.])/i
_IS: /IS(?![\w$.])/i
_NULL: /NULL(?![\w$.])/i
TRUE: /TRUE(?![\w$.])/i
FALSE: /FALSE(?![\w$.])/i
NAME: /(?!(?:AND|OR|NOT|BETWEEN|IN|LIKE|ESCAPE|IS|NULL|TRUE|FALSE)(?![\w$.]))(?:[^\W\d]|\$)[\w$.]*/i
QUOTED: /"(?:[^"]|"")+"/
TEXT: /'(?:[^']|'')*'/
NUMBER: /0[xX][\w$.]*(?:(?<=[pP])[+-][\w$.]*)?|\.?[0-9](?:(?<=[eE])[+-]|[\w$.])*/
%ignore /[ \t\f\r\n]+/
"""

# As many words as are allowed, and no look back.
_WORDS: Final = re.compile(rf"""\s*+(?:(?>'[^']*+'|"[^"]*+"|[\w$.]++|\S)\s*+){{0,{WORDS_MAX}}}+""")
_OUTSIDE_QUOTES: Final = re.compile(r"""'[^']*'|"[^"]*"|[()]""")


def parse(text: str) -> Term:
    """The whole of `text` as one term. Raises Refused amqp:invalid-field with the column of what is wrong."""
    _check_bounds(text)
    from lark import UnexpectedInput  # which takes time: not for what is out of bounds

    try:
        term = _parser().parse(text)
    except UnexpectedInput as error:
        raise refusal(*_explained(text, error)) from None
    assert isinstance(term, Term)
    return term


def _check_bounds(text: str) -> None:
    if len(text) > SELECTOR_SIZE_MAX:
        raise refusal(SELECTOR_SIZE_MAX + 1, f"it has {len(text)} characters; {SELECTOR_SIZE_MAX} are allowed")
    if not text.strip():
        raise refusal(1, "it is empty; leave the selector out to get all messages")
    words = _WORDS.match(text)
    if words is not None and words.end() < len(text):
        raise refusal(words.end() + 1, f"here are more than {WORDS_MAX} words, signs, brackets and commas counted")
    depth = 0
    for bracket in _OUTSIDE_QUOTES.finditer(text):
        depth += {"(": 1, ")": -1}.get(bracket[0], 0)
        if depth > DEPTH_MAX:
            raise refusal(bracket.start() + 1, f"brackets are nested deeper than {DEPTH_MAX}")


def prepare() -> None:
    """What the first selector of a process waits for otherwise, some 150 ms. From any thread."""
    _parser()


@cache
def _parser() -> Lark:
    from lark import Lark

    return Lark(_GRAMMAR, parser="lalr", lexer="contextual", transformer=_Build(), maybe_placeholders=False)


class _Build:
    """A method for each form of the grammar, called with its parts as soon as the form is complete."""

    def either(self, parts: list[Any]) -> Term:
        return terms.disjunction(parts)

    def both(self, parts: list[Any]) -> Term:
        return terms.conjunction(parts)

    def negated(self, parts: list[Any]) -> Term:
        # The first negation sees to it that there is a condition; two more take each other away.
        *words, term = parts
        once = terms.negation(term, _column(words[-1]))
        return once if len(words) % 2 else terms.negation(once, _column(words[0]))

    def compared(self, parts: list[Any]) -> Term:
        left, sign, right = parts
        return terms.comparison(str(sign), left, right)

    def between(self, parts: list[Any]) -> Term:
        if len(parts) == 4:
            return terms.outside(parts[0], parts[2], parts[3])
        return terms.between(*parts)

    def contained(self, parts: list[Any]) -> Term:
        term, word, *texts = _with_word(parts)
        is_member = terms.membership(term, frozenset(unquoted(each) for each in texts))
        return _negated(is_member, word)

    def like(self, parts: list[Any]) -> Term:
        term, word, pattern, *escape = _with_word(parts)
        escaping = unquoted(escape[0]) if escape else None
        if escaping is not None and len(escaping) != 1:
            raise refusal(_column(escape[0]), f"ESCAPE takes one character, not {len(escaping)}")
        return _negated(terms.likeness(term, unquoted(pattern), escaping, _column(pattern)), word)

    def null(self, parts: list[Any]) -> Term:
        term, word = _with_word(parts)
        return _negated(terms.nullness(term), word)

    def chained(self, parts: list[Any]) -> Term:
        signs, operands = parts[1::2], parts[2::2]
        return terms.arithmetic(parts[0], [(str(sign), term) for sign, term in zip(signs, operands, strict=True)])

    def signed(self, parts: list[Any]) -> Term:
        *signs, term = parts
        make = terms.negative if signs.count("-") % 2 else terms.positive
        return make(term, _column(signs[0]))

    def name(self, parts: list[Token]) -> Term:
        return terms.name(str(parts[0]), _column(parts[0]))

    def quoted(self, parts: list[Token]) -> Term:
        return terms.name(unquoted(parts[0]), _column(parts[0]))

    def text(self, parts: list[Token]) -> Term:
        return terms.constant(terms.TEXT, unquoted(parts[0]), _column(parts[0]))

    def number(self, parts: list[Token]) -> Term:
        column = _column(parts[0])
        return terms.constant(terms.NUMBER, number(str(parts[0]), column), column)

    def true(self, parts: list[Token]) -> Term:
        return terms.constant(terms.TRUTH, True, _column(parts[0]))

    def false(self, parts: list[Token]) -> Term:
        return terms.constant(terms.TRUTH, False, _column(parts[0]))


def _column(token: Token) -> int:
    return (token.start_pos or 0) + 1


def _with_word(parts: list[Any]) -> list[Any]:
    """The parts with None in the place of a NOT that is not there."""
    has_word = len(parts) > 1 and getattr(parts[1], "type", "") == "NOT"
    return parts if has_word else [parts[0], None, *parts[1:]]


def _negated(term: Term, word: Token | None) -> Term:
    return term if word is None else terms.negation(term, term.column)


# -- what is wrong ----------------------------------------------------------------------------------------------------

# What may come next, by the token that says so; the others come together with one of these.
_DUE: Final = {
    "NAME": "a name, a literal or an opening bracket",
    "TEXT": "a text in single quotes",
    "EQUAL": "a comparison",
    "_LIKE": "BETWEEN, IN or LIKE",
    "_AND": "AND",
    "_OR": "OR",
    "_NULL": "NULL",
    "LPAR": "an opening bracket",
    "COMMA": "a comma",
    "RPAR": "a closing bracket",
    "$END": "the end",
}
# What people write who have another language in mind, longest first.
_ADVICE: Final = {
    "!=": "not equal is <>",
    "==": "equal is =",
    "=>": "at least is >=",
    "=<": "at most is <=",
    "&&": "and is AND",
    "||": "or is OR",
    "/*": "comments are not possible",
    "NULL": "use IS NULL or IS NOT NULL",
    "!": "not is NOT",
    "%": "there is no remainder",
}
_UNCLOSED: Final = {
    "'": "this quote is not closed; a quote within a text is written twice",
    '"': "these double quotes are not closed or empty; they hold names, and texts have single quotes",
}


def _explained(text: str, error: UnexpectedInput) -> tuple[int, str]:
    """(column, what is there, what is due and what may have been meant)."""
    from lark import UnexpectedCharacters, UnexpectedToken

    if isinstance(error, UnexpectedToken):
        due, is_end = error.accepts or error.expected, error.token.type == "$END"
    else:
        due, is_end = set(getattr(error, "allowed", None) or ()) - {"RPAR"}, False
    if {"NAME", "TEXT"} <= due:
        due = due - {"TEXT", "LPAR"}
    if "EQUAL" in due:
        due = due - {"_LIKE"}
    words = [word for token, word in _DUE.items() if token in due]
    wanted = " or ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else words[0]
    if is_end:
        return len(text.rstrip()) + 1, f"it ends where {wanted} is due"
    at = error.pos_in_stream or 0
    unexpected = str(error.token) if isinstance(error, UnexpectedToken) else text[at]
    meant = next((advice for sign, advice in _ADVICE.items() if _is_at(text, at, sign)), "")
    if not meant and isinstance(error, UnexpectedCharacters):
        meant = _UNCLOSED.get(unexpected, "")
    advice = f" ({meant})" if meant else ""
    return at + 1, f"{unexpected[:40]!r} stands where {wanted} is due{advice}"


def _is_at(text: str, at: int, sign: str) -> bool:
    """Whether the sign begins here, or is complete here: `==` is found at its second character."""
    begins = text[at : at + len(sign)].upper() == sign
    return begins or (len(sign) > 1 and at > 0 and text[at - 1 : at - 1 + len(sign)] == sign)
