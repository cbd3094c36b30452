"""Forms of names and paths, each with the sentence that tells a reader what it asks for."""

from __future__ import annotations

from typing import Final

SECRET_CHARACTERS_MIN: Final = 16  # of a cluster

NODE_NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
OPTIONAL_NODE_NAME: Final = r"^([A-Za-z0-9][A-Za-z0-9._-]{0,62})?$"
ABSOLUTE_PATH: Final = r"^[/{][^\x00-\x1f\x7f]*$"
OPTIONAL_PATH: Final = r"^(/[^\x00-\x1f\x7f]*)?$"
CIPHERS: Final = r"^[A-Za-z0-9@=!+:_-]*$"
LABEL: Final = r"^[a-z0-9][a-z0-9-]{0,31}$"
ROLE: Final = r"^[a-z][a-z0-9_-]{0,62}$"
OPTIONAL_ROLE: Final = r"^([a-z][a-z0-9_-]{0,62})?$"
PREFIX: Final = r"^[^\x00-\x20\x7f,]{1,100}$"
NETWORK_CARD: Final = r"^[^\s/]{1,15}$"
_HOST: Final = r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9][A-Za-z0-9._-]{0,252})"
_PORT: Final = r"(6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[1-9][0-9]{0,3})"
PLACE: Final = rf"^{_HOST}:{_PORT}$"
HOST: Final = r"^([0-9A-Fa-f:]*:[0-9A-Fa-f:.]*|[A-Za-z0-9][A-Za-z0-9._-]{0,252})$"
OPTIONAL_PLACE: Final = rf"^({_HOST}:{_PORT})?$"
DNS_NAME: Final = rf"^({_HOST}:{_PORT}|_[A-Za-z0-9-]{{1,62}}\._(tcp|udp)(\.[A-Za-z0-9-]{{1,63}})+)$"

SENTENCES: Final = {
    NODE_NAME: "must be 1 to 63 letters, digits, dots, dashes or underscores and start with a letter or digit",
    OPTIONAL_NODE_NAME: "must be 1 to 63 letters, digits, dots, dashes or underscores, or be empty",
    ABSOLUTE_PATH: "must be an absolute path without control characters",
    OPTIONAL_PATH: "must be an absolute path without control characters, or empty",
    CIPHERS: "must be names of ciphers as OpenSSL lists them, divided by colons",
    LABEL: "must be 1 to 32 lower-case letters, digits or dashes and start with a letter or digit",
    ROLE: "must be lower-case letters, digits, dashes or underscores and start with a letter",
    OPTIONAL_ROLE: "must be lower-case letters, digits, dashes or underscores and start with a letter, or be empty",
    PREFIX: "must be 1 to 100 characters, none of them a blank, a comma or a control character",
    NETWORK_CARD: "must be the name of a network card, 1 to 15 characters",
    HOST: "must be an IP address or the name of a host",
    PLACE: "must be a host and its port as in broker-2.example:5672 or [::1]:5672",
    DNS_NAME: "must be a name and its port as in brokers.example:5673, or a name for SRV as in _mq._tcp.example.org",
    OPTIONAL_PLACE: "must be a host and its port as in broker-2.example:5672 or [::1]:5672, or empty",
}
