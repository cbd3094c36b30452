"""How long nobody dials a host again that could not be reached. Pure.

Invariant: whoever follows a host looks twice a second, but its sshd sees few logins: servers shut out a place from
which refused ones come again and again (PerSourcePenalties of sshd, fail2ban, pam_faillock).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from mqctl.errors import LoginRefused, Unreachable

REST_S: Final = 5.0
REST_S_MAX: Final = 30.0


@dataclass(frozen=True, slots=True)
class Rest:
    """Of a host or a jump host, until `until_s` on the clock of who asks; `length_s` long, for `fault`."""

    until_s: float
    length_s: float
    fault: Unreachable

    @classmethod
    def after(cls, fault: Unreachable, before: Self | None, now_s: float) -> Self:
        """The rest that begins now. `before`: the one of the attempt before, where that failed too."""
        is_again = before is not None and isinstance(before.fault, LoginRefused) and isinstance(fault, LoginRefused)
        length_s = min(2 * before.length_s, REST_S_MAX) if before is not None and is_again else REST_S
        return cls(now_s + length_s, length_s, fault)

    def check(self, now_s: float, host: str) -> None:
        """Raise what the last attempt met, where it is too early for another one. `host`: the one that is asked for."""
        if now_s < self.until_s:
            raise type(self.fault)(host, self.fault.why, self.fault.attempt)
