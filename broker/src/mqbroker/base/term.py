"""How far a term goes, wherever it is written or said: files, opens, announcements, news of members.

Signed numbers of 64 bits hold all of them, as other programs read JSON and AMQP. What is beyond is refused by each.
Source: docs/adr/0023-term.md.
"""

from typing import Final

TERM_MAX: Final = 2**63 - 1
