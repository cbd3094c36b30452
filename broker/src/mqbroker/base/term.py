"""How far a term goes, wherever it is written or said: files, opens, announcements, news of members (adr/0023-term.md).

Signed numbers of 64 bits hold all of them, as other programs read JSON and AMQP. What is beyond is refused by each.
"""

from typing import Final

TERM_MAX: Final = 2**63 - 1
