"""Text of others on its way to people: names of peers, contents of files, answers of hosts.

Invariant: what is shown drives no terminal and hides nothing. Control characters, escape sequences and marks that turn
the direction of writing become visible. Pure ASCII in JSON needs more than `json.dumps`: it leaves DEL as it is.
"""

from __future__ import annotations


def printable(text: str) -> str:
    """Control characters made visible; line ends and tabs stay."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in "\n\t" else repr(one)[1:-1] for one in text)


def one_line(text: str) -> str:
    """The same, and line ends as well: where a line is one thing, nobody may make another of it."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def safe_json(text: str) -> str:
    """JSON of `json.dumps` without the one control character that it leaves."""
    return text.replace("\x7f", "\\u007f")
