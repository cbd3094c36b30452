"""What OpenSSH makes of a command line and its configuration files: the output of `ssh -G`, read into a Hop. Pure.

Invariant: an option that decides whether or how safely a host is reached is honoured or refused by name; only options
of terminals, forwarding and multiplexing are passed over. Source: ssh_config(5) of OpenSSH 9.2.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mqctl.errors import UsageError

SshSettings = Mapping[str, list[str]]
# As the roles have Ansible do it: TCP notices for hours nothing of a host that falls silent while it is waited for.
KEEPALIVE_S = 15
NONE = {"none", "no", "false", ""}
# Option -> values that ask for nothing. Any other value is one that paramiko cannot honour.
REFUSED: dict[str, set[str]] = {
    "pkcs11provider": NONE,
    "knownhostscommand": NONE,
    "proxyusefdpass": NONE,
    "revokedhostkeys": NONE,
    "bindinterface": NONE,
    "remotecommand": NONE,
    "verifyhostkeydns": NONE,
    "nohostauthenticationforlocalhost": NONE,
    "permitlocalcommand": NONE,
    "channeltimeout": NONE,
}
# Lists of algorithms: name in `ssh -G` -> name of the same list in paramiko.
ALGORITHMS = {
    "ciphers": "ciphers",
    "kexalgorithms": "kex",
    "macs": "macs",
    "hostkeyalgorithms": "keys",
    "pubkeyacceptedalgorithms": "pubkeys",
}
OPTION_NAMES = {
    "pkcs11provider": "PKCS11Provider", "knownhostscommand": "KnownHostsCommand", "proxyusefdpass": "ProxyUseFdpass",
    "revokedhostkeys": "RevokedHostKeys", "bindinterface": "BindInterface", "remotecommand": "RemoteCommand",
    "verifyhostkeydns": "VerifyHostKeyDNS", "nohostauthenticationforlocalhost": "NoHostAuthenticationForLocalhost",
    "permitlocalcommand": "PermitLocalCommand", "channeltimeout": "ChannelTimeout",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Hop:
    """One SSH server on the way to a host, the host itself being the last."""

    host: str
    port: int
    user: str
    known_as: str = ""
    identity_files: tuple[str, ...] = ()
    certificate_files: tuple[str, ...] = ()
    identities_only: bool = False
    agent: str = "SSH_AUTH_SOCK"
    known_hosts_files: tuple[str, ...] = ()
    host_keys: str = "ask"
    methods: tuple[str, ...] = ("publickey", "keyboard-interactive", "password")
    proxy_command: str = ""
    proxy_jump: str = ""
    bind_address: str = ""
    address_family: str = "any"
    keepalive_s: int = 0
    is_compressed: bool = False
    algorithms: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def known_hosts_name(self) -> str:
        """The name that known_hosts files have for this server (sshd(8), SSH_KNOWN_HOSTS FILE FORMAT)."""
        if self.known_as:
            return self.known_as
        return self.host if self.port == 22 else f"[{self.host}]:{self.port}"

    def __str__(self) -> str:
        return f"{self.user}@{self.host}:{self.port}"


def parse(text: str) -> SshSettings:
    """Lines of `ssh -G` into option -> values, in their order. Some options stand on several lines."""
    settings: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, _, value = line.strip().partition(" ")
        if name:
            settings.setdefault(name.lower(), []).append(value.strip())
    return settings


def hop_of(name: str, settings: SshSettings) -> Hop:
    """What to connect to. `name` is the host of the inventory, for errors."""
    for option, harmless in REFUSED.items():
        if _one(settings, option).lower() not in harmless:
            raise UsageError(
                f"{name}: the SSH option {OPTION_NAMES[option]} {_one(settings, option)} cannot be honoured by mqctl",
                f"mqctl … with a host that is reached without {OPTION_NAMES[option]}",
            )
    host = _one(settings, "hostname")
    port = int(_one(settings, "port") or 22)
    user = _one(settings, "user")
    tokens = {"h": host, "p": str(port), "r": user, "n": _one(settings, "host") or host, "%": "%"}
    return Hop(
        host=host,
        port=port,
        user=user,
        known_as=_one(settings, "hostkeyalias"),
        identity_files=tuple(_path(one) for one in settings.get("identityfile", []) if one != "none"),
        certificate_files=tuple(_path(one) for one in settings.get("certificatefile", []) if one != "none"),
        identities_only=_one(settings, "identitiesonly") == "yes",
        agent=_one(settings, "identityagent") or "SSH_AUTH_SOCK",
        known_hosts_files=_known_hosts_files(settings),
        host_keys=_host_keys(_one(settings, "stricthostkeychecking")),
        methods=_methods(settings),
        proxy_command=_expand(name, _unless_none(_one(settings, "proxycommand")), tokens),
        proxy_jump=_unless_none(_one(settings, "proxyjump")),
        bind_address=_unless_none(_one(settings, "bindaddress")),
        address_family=_one(settings, "addressfamily") or "any",
        keepalive_s=int(_one(settings, "serveraliveinterval") or 0) or KEEPALIVE_S,
        is_compressed=_one(settings, "compression") == "yes",
        algorithms=tuple(
            (theirs, tuple(_one(settings, ours).split(","))) for ours, theirs in ALGORITHMS.items() if ours in settings
        ),
    )


def jump_arguments(hop: Hop, arguments: Sequence[str]) -> list[str] | None:
    """Arguments of `ssh -G` for the server to go through, as OpenSSH would start it; None where there is none.

    Options of the command line do not reach a jump host in OpenSSH, only `-F` does; so it is here.
    """
    if not hop.proxy_jump:
        return None
    *before, last = hop.proxy_jump.split(",")
    out = config_file(arguments)
    if before:
        out += ["-J", ",".join(before)]
    return [*out, *_destination(last)]


def config_file(arguments: Sequence[str]) -> list[str]:
    """The option `-F` of a command line, if it is there."""
    for index, one in enumerate(arguments):
        if one == "-F" and index + 1 < len(arguments):
            return ["-F", arguments[index + 1]]
        if one.startswith("-F") and len(one) > 2:
            return ["-F", one[2:]]
    return []


def _destination(spec: str) -> list[str]:
    """`[user@]host[:port]` or `ssh://…`, with IPv6 addresses in brackets."""
    spec = spec.strip().removeprefix("ssh://").rstrip("/")
    user, _, rest = spec.rpartition("@")
    out = ["-l", user] if user else []
    matched = re.fullmatch(r"\[(?P<v6>[^\]]+)\](?::(?P<p6>\d+))?|(?P<host>[^:]+)(?::(?P<port>\d+))?|(?P<bare>.+)", rest)
    if matched is None:
        raise UsageError(f"ProxyJump {spec}: there is no host in it")
    port = matched["p6"] or matched["port"]
    host = matched["v6"] or matched["host"] or matched["bare"]
    return [*out, *(["-p", port] if port else []), host]


def _expand(name: str, command: str, tokens: Mapping[str, str]) -> str:
    def value(matched: re.Match[str]) -> str:
        if matched[1] not in tokens:
            raise UsageError(f"{name}: the token %{matched[1]} in ProxyCommand cannot be honoured by mqctl")
        return tokens[matched[1]]

    return re.sub(r"%(.)", value, command)


def _methods(settings: SshSettings) -> tuple[str, ...]:
    switches = {
        "publickey": "pubkeyauthentication",
        "keyboard-interactive": "kbdinteractiveauthentication",
        "password": "passwordauthentication",
    }
    preferred = _one(settings, "preferredauthentications")
    order = [one.strip() for one in preferred.split(",")] if preferred else list(switches)
    return tuple(one for one in order if one in switches and _one(settings, switches[one]) not in {"no", "false"})


def _known_hosts_files(settings: SshSettings) -> tuple[str, ...]:
    names = [*_one(settings, "userknownhostsfile").split(), *_one(settings, "globalknownhostsfile").split()]
    return tuple(_path(one) for one in names if one != "none")


def _host_keys(value: str) -> str:
    """yes, ask, accept-new or no; `ssh -G` also prints true, false and off."""
    return {"true": "yes", "false": "no", "off": "no", "": "ask"}.get(value, value)


def _one(settings: SshSettings, name: str) -> str:
    return settings.get(name, [""])[0]


def _unless_none(value: str) -> str:
    return "" if value.lower() == "none" else value


def _path(value: str) -> str:
    return value.strip('"')
