"""Owns the one error that a command of the rack ends with.

Invariant: its text says what failed, where, and what to do next, in plain words; the command line prints it
without a traceback. Anything else that escapes is a defect of the rack itself.
"""


class RackError(Exception):
    """The rack cannot do what was asked; the text is for the person who asked."""
