"""Arguments of requests: looked up, checked, and named in the error where they are wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from mqbroker.base.errors import Refused
from mqbroker.core.address.deployed_addresses import declares
from mqbroker.core.queue.queue import Queue
from mqbroker.core.selector.selector import Selector, compile_selector
from mqbroker.node.broker.broker import Broker
from mqbroker.node.values.inputs import AdminRequest

STORE_AND_FORWARD: Final = "store_and_forward"  # says that messages for another node are meant
CONFIGURED: Final = "configured"  # says that a queue is meant that the file of options declares


def argument(request: AdminRequest, name: str, kind: type, default: Any = None) -> Any:
    """The argument of that name, which must be of that kind. Raises Refused; without a default it must be there."""
    value = request.arguments.get(name)
    if value is None:
        value = default
    if value is None:
        raise Refused("amqp:invalid-field", f"{request.operation}: argument {name!r} is missing")
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise Refused("amqp:invalid-field", f"{request.operation}: argument {name!r} must be {kind.__name__}")
    return value


def number(request: AdminRequest, name: str, default: int | None, bounds: tuple[int, int]) -> int:
    """A whole number within bounds, both included. Raises Refused."""
    value: int = argument(request, name, int, default)
    least, most = bounds
    if not least <= value <= most:
        what = f"{request.operation}: argument {name!r} is a whole number from {least} to {most}, not {value}"
        raise Refused("amqp:invalid-field", what)
    return value


def is_text(value: Any) -> bool:
    """Whether a value, where it is a text, can be written: JSON may name halves of surrogate pairs."""
    if not isinstance(value, str):
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_names(request: AdminRequest, known: Sequence[str]) -> None:
    """Nothing else may be said: a word that does nothing is a mistake. Raises Refused."""
    unknown = sorted(set(request.arguments) - set(known))
    if unknown:
        what = f"{request.operation}: unknown argument {unknown[0]!r}; there are: {', '.join(known)}"
        raise Refused("amqp:invalid-field", what)


def queue_named(broker: Broker, request: AdminRequest, name: str = "name") -> Queue:
    """The queue that an argument names, which must exist. Raises Refused."""
    wanted = argument(request, name, str)
    found = broker.store.queues.get(wanted)
    if found is None:
        raise Refused("amqp:not-found", f"{request.operation}: there is no queue {wanted!r}")
    return found


def check_may_drop(request: AdminRequest, queue: Queue) -> None:
    """Raises Refused where messages are for another node, and the request does not say that it means it."""
    if queue.kind.is_forwarding and not argument(request, STORE_AND_FORWARD, bool, False):
        why = f"queue {queue.kind.name!r} holds messages for node {queue.kind.forwards_to}, which would never get them"
        advice = "cluster forget routes them anew; to drop them, say that a store-and-forward queue is meant"
        raise Refused("amqp:precondition-failed", f"{request.operation}: {why}; {advice}")


def check_is_not_forwarded(request: AdminRequest, queue: Queue) -> None:
    """Raises Refused where another node may have messages of the queue already: moved, they would be two."""
    if queue.kind.is_forwarding:
        why = f"queue {queue.kind.name!r} holds messages for node {queue.kind.forwards_to}, which may have some of them"
        advice = "if that node does not come back, cluster forget routes them anew"
        raise Refused("amqp:precondition-failed", f"{request.operation}: {why}; {advice}")


def check_is_not_declared(broker: Broker, request: AdminRequest, queue: Queue) -> None:
    """Raises Refused where the file of options says that the queue is there, and the request does not say that it means
    such a queue."""
    is_meant = argument(request, CONFIGURED, bool, False)
    if queue.kind.configured and not is_meant and declares(broker.offered.addresses, queue.kind.name):
        why = f"queue {queue.kind.name!r} is in broker.toml, so the next start or reload makes it again, empty"
        advice = "remove it there first, or say that a configured queue is meant"
        raise Refused("amqp:precondition-failed", f"{request.operation}: {why}; {advice}")


def selector_of(request: AdminRequest) -> Selector | None:
    """The argument `selector`, None where there is none or a blank one. Raises Refused with its column."""
    text: str = argument(request, "selector", str, "")
    return compile_selector(text) if text.strip() else None
