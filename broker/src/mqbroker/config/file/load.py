"""`broker.toml` from text to slices. Reports every fault of a file at once, each with its path; applies no half file.

What one option alone may hold is said in `options.py`; what options may hold together is checked here, also where
other parts of the file are wrong, so that one round of corrections is enough.
"""

from __future__ import annotations

import ipaddress
import tomllib
from collections.abc import Iterator
from typing import Any, TypeVar

from pydantic import ValidationError

from mqbroker.base.errors import ConfigFault
from mqbroker.config.declarations import clustering, routing
from mqbroker.config.declarations.address_options import AddressTable, DivertTable
from mqbroker.config.declarations.declaration import SOCKET_PATH_BYTES_MAX, OptionTable
from mqbroker.config.declarations.monitoring import MetricTable
from mqbroker.config.declarations.options import BrokerFile, LimitTable, ListenerTable, to_slices
from mqbroker.config.file import completeness, faults
from mqbroker.config.matching import DELIMITER, same_for_all
from mqbroker.config.slices import BrokerOptions, NodeOptions

AnyTable = TypeVar("AnyTable", bound=OptionTable)


def parse(text: str) -> BrokerOptions | list[ConfigFault]:
    """The options of a `broker.toml`, or everything that is wrong with it."""
    if len(text) > completeness.TEXT_CHARACTERS_MAX:
        return [
            ConfigFault("file", f"is longer than {completeness.TEXT_CHARACTERS_MAX} characters; this is no broker.toml")
        ]
    cut = completeness.fault_of(text)
    if cut is not None:
        return [cut]
    try:
        raw = tomllib.loads(text)
    except ValueError as error:  # TOMLDecodeError is one; so is a number of more digits than Python takes
        return [ConfigFault("file", f"is not TOML: {error}")]
    except RecursionError:
        return [ConfigFault("file", "is nested too deeply; options are at most a list in a table")]
    wrong: list[ConfigFault] = []
    file: BrokerFile | None = None
    try:
        file = BrokerFile.model_validate(raw)
    except ValidationError as error:
        wrong = [clustering.explained(one) for one in faults.from_validation(BrokerFile, error)]
    wrong += _together(raw)
    if wrong or file is None:
        return wrong
    options = to_slices(file)
    return _path_faults(options.node) or options


def _together(raw: dict[str, Any]) -> list[ConfigFault]:
    """Faults between options, from those tables of the file that are valid by themselves."""
    listeners = raw.get("listeners", [])
    valid: list[tuple[int, ListenerTable]] = []
    for number, item in enumerate(listeners if isinstance(listeners, list) else []):
        table = _table_or_none(ListenerTable, item)
        if table is not None:
            valid.append((number, table))
    wrong = _listener_faults(valid)
    for head in ("address-settings", "security-settings"):
        wrong += _match_faults(head, raw.get(head, []))
    wrong += address_faults(raw.get("addresses", []))
    wrong += _divert_faults(raw.get("diverts", []))
    wrong += clustering.faults(raw)
    wrong += routing.faults(raw)
    limits = _table_or_none(LimitTable, raw.get("limits", {}))
    if limits is not None and limits.max_message_size_bytes > limits.global_max_size_bytes:
        why = f"must not be above limits.global-max-size-bytes, which is {limits.global_max_size_bytes}"
        wrong.append(ConfigFault("limits.max-message-size-bytes", why))
    metrics = _table_or_none(MetricTable, raw.get("metrics", {}))
    if metrics is not None:
        wrong += _metrics_faults(metrics, valid)
    return wrong


def _match_faults(head: str, tables: object) -> list[ConfigFault]:
    wrong = []
    seen: dict[tuple[str, ...], tuple[int, str]] = {}
    for number, item in enumerate(tables if isinstance(tables, list) else []):
        match = item.get("match") if isinstance(item, dict) else None
        if not isinstance(match, str):
            continue
        path = f"{head}.{number}.match"
        first, spelling = seen.setdefault(tuple(same_for_all(match.split(DELIMITER))), (number, match))
        if first != number:
            same = "" if spelling == match else f" as {spelling}, which matches the same"
            why = f"{match} is declared twice, first as {head}.{first}{same}; put both into one table"
            wrong.append(ConfigFault(path, why))
        if any(len(word) > 1 and ("*" in word or "#" in word) for word in match.split(".")):
            why = f"{match!r}: * and # stand for whole words between dots, such as orders.*.eu or orders.#"
            wrong.append(ConfigFault(path, why))
    return wrong


def address_faults(tables: object, head: str = "addresses") -> list[ConfigFault]:
    """Names that are declared twice, queues of a type that their address does not have, names that mean a queue."""
    wrong = []
    seen: dict[str, str] = {}
    for number, item in enumerate(tables if isinstance(tables, list) else []):
        table = _table_or_none(AddressTable, item)
        if table is None:
            continue
        path = f"{head}.{number}"
        wrong += _named_once(seen, f"address {table.name}", f"{path}.name")
        if "::" in table.name:
            wrong.append(ConfigFault(f"{path}.name", "names a queue at an address; declare the queue in its address"))
        for kind, queues in (("anycast", table.anycast), ("multicast", table.multicast)):
            if queues and table.routing_types and kind.upper() not in table.routing_types:
                why = f"has queues, but routing-types are {', '.join(table.routing_types)}; add {kind.upper()} there"
                wrong.append(ConfigFault(f"{path}.{kind}", why))
            for place, queue in enumerate(queues):
                wrong += _named_once(seen, f"queue {queue.name}", f"{path}.{kind}.{place}.name")
    return wrong


def _named_once(seen: dict[str, str], what: str, path: str) -> list[ConfigFault]:
    first = seen.setdefault(what, path)
    return (
        [] if first == path else [ConfigFault(path, f"{what} is declared twice, first as {first}; remove one of them")]
    )


def _divert_faults(tables: object) -> list[ConfigFault]:
    wrong = []
    seen: dict[str, int] = {}
    for number, item in enumerate(tables if isinstance(tables, list) else []):
        table = _table_or_none(DivertTable, item)
        if table is None:
            continue
        if table.name in seen:
            why = f"divert {table.name} is declared twice, first as diverts.{seen[table.name]}; rename one of them"
            wrong.append(ConfigFault(f"diverts.{number}.name", why))
        seen.setdefault(table.name, number)
        if table.address == table.forwarding_address:
            wrong.append(ConfigFault(f"diverts.{number}.forwarding-address", "is the address itself; name another one"))
    return wrong


def _metrics_faults(metrics: MetricTable, listeners: list[tuple[int, ListenerTable]]) -> list[ConfigFault]:
    return [
        ConfigFault(
            "metrics.port", f"port {metrics.port} is taken by listeners.{number} ({one.name}); choose another port"
        )
        for number, one in listeners
        if one.port == metrics.port and overlap(one.local_bind_address, metrics.local_bind_address)
    ]


def _table_or_none(model: type[AnyTable], raw: object) -> AnyTable | None:
    try:
        return model.model_validate(raw)
    except ValidationError:
        return None


def _listener_faults(listeners: list[tuple[int, ListenerTable]]) -> list[ConfigFault]:
    wrong = []
    for place, (number, one) in enumerate(listeners):
        path = f"listeners.{number}"
        wrong += _plaintext_faults(path, one)
        wrong += [ConfigFault(f"{path}.{option}", why) for option, why in tls_faults(one)]
        if one.frame_size_before_open_bytes > one.max_frame_size_bytes:
            why = f"must not be above max-frame-size-bytes, which is {one.max_frame_size_bytes}"
            wrong.append(ConfigFault(f"{path}.frame-size-before-open-bytes", why))
        both = [prefix for prefix in one.multicast_prefix if prefix in one.anycast_prefix]
        if both:
            wrong.append(ConfigFault(f"{path}.multicast-prefix", f"must differ from anycast-prefix: {', '.join(both)}"))
        for earlier_number, earlier in listeners[:place]:
            if earlier.name == one.name:
                why = f"listener {one.name} is declared twice, first as listeners.{earlier_number}; rename one of them"
                wrong.append(ConfigFault(f"{path}.name", why))
            if earlier.port == one.port and overlap(earlier.local_bind_address, one.local_bind_address):
                why = f"port {one.port} is taken by listeners.{earlier_number} ({earlier.name}); choose another port"
                wrong.append(ConfigFault(f"{path}.port", why))
    return wrong


def _plaintext_faults(path: str, listener: ListenerTable) -> list[ConfigFault]:
    is_safe = listener.tls_certificate_file or listener.allow_plaintext
    if is_safe or ipaddress.ip_address(listener.local_bind_address).is_loopback:
        return []
    why = (
        f"{listener.local_bind_address} is not a loopback address, and the listener has no TLS: passwords of PLAIN and "
        "all messages would cross the network unencrypted; set tls-certificate-file and tls-key-file, or "
        "allow-plaintext = true if that network is trusted"
    )
    return [ConfigFault(f"{path}.local-bind-address", why)]


def tls_faults(listener: ListenerTable) -> Iterator[tuple[str, str]]:
    """(option, why). What the files hold is known where they are: `io/sockets/tls.py`."""
    yield from _file_faults(listener)
    yield from _external_faults(listener)


def _file_faults(listener: ListenerTable) -> Iterator[tuple[str, str]]:
    if not listener.tls_certificate_file:
        unused = {
            "tls-key-file": listener.tls_key_file,
            "tls-client-ca-file": listener.tls_client_ca_file,
            "tls-client-auth": listener.tls_client_auth != "none",
            "tls-ciphers": listener.tls_ciphers,
        }
        for option in (name for name, value in unused.items() if value):
            yield option, "is set without tls-certificate-file, so the listener has no TLS; set that, or remove this"
        return
    if not listener.tls_key_file:
        yield "tls-key-file", "is missing: a certificate needs its private key; set the file that holds it"
    if listener.tls_client_auth != "none" and not listener.tls_client_ca_file:
        why = f"is {listener.tls_client_auth}, but nothing says which certificates are good; set tls-client-ca-file"
        yield "tls-client-auth", why
    if listener.tls_client_auth == "none" and listener.tls_client_ca_file:
        why = (
            "is set, but tls-client-auth is none: no client is asked for a certificate; set it to optional or required"
        )
        yield "tls-client-ca-file", why


def _external_faults(listener: ListenerTable) -> Iterator[tuple[str, str]]:
    if "EXTERNAL" not in listener.sasl_mechanisms:
        return
    if listener.tls_client_auth == "none":
        why = "has EXTERNAL, but no client is asked for a certificate; set tls-client-auth to optional or required"
        yield "sasl-mechanisms", why
    elif listener.tls_client_auth == "optional" and len(listener.sasl_mechanisms) == 1:
        why = "is EXTERNAL alone, so clients without a certificate find nothing; set tls-client-auth to required"
        yield "sasl-mechanisms", why


def overlap(one: str, other: str) -> bool:
    """Whether two listeners with these addresses cannot have the same port."""
    first, second = ipaddress.ip_address(one), ipaddress.ip_address(other)
    if first == second:
        return True
    any_ipv6 = any(item.version == 6 and item.is_unspecified for item in (first, second))
    if first.version != second.version:
        return any_ipv6
    return first.is_unspecified or second.is_unspecified


def _path_faults(node: NodeOptions) -> list[ConfigFault]:
    """Faults of paths once their placeholders are filled in."""
    wrong = []
    paths = {
        "node.data-directory": node.data_directory,
        "node.admin-socket": node.admin_socket,
        "node.users-file": node.users_file,
        "node.cluster-secret-file": node.cluster_secret_file,
    }
    for path, value in paths.items():
        if not value.startswith("/") or "{" in value:
            why = f"is {value!r}: it must be absolute, and may hold no placeholder but {{name}} and {{data-directory}}"
            wrong.append(ConfigFault(path, why))
    length_bytes = len(node.admin_socket.encode())
    if length_bytes > SOCKET_PATH_BYTES_MAX:
        why = f"has {length_bytes} bytes; a Unix socket has at most {SOCKET_PATH_BYTES_MAX}, choose a shorter path"
        wrong.append(ConfigFault("node.admin-socket", why))
    return wrong
