"""Arguments of requests: declared in the row of their operation, checked before it runs, named where they are wrong.

An operation finds in `request.arguments` all that its row declares, each of its kind and within its bounds, or else its
default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mqbroker.base.errors import Refused
from mqbroker.core.address.deployed_addresses import declares
from mqbroker.core.queue.queue import Queue
from mqbroker.core.selector.selector import Selector, compile_selector
from mqbroker.node.broker.broker import Broker
from mqbroker.node.values.inputs import AdminRequest

STORE_AND_FORWARD: Final = "store_and_forward"  # says that messages for another node are meant
CONFIGURED: Final = "configured"  # says that a queue is meant that the file of options declares


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of an operation. Who leaves it out, or says null, means `default`, which may be None."""

    name: str
    kind: type
    default: Any = None
    is_needed: bool = False
    bounds: tuple[int, int] | None = None  # of a whole number, both included
    choices: tuple[str, ...] = ()

    def checked(self, operation: str, said: Any) -> Any:
        """What is meant by what was said. Raises Refused."""
        if said is None:
            if self.is_needed:
                raise Refused("amqp:invalid-field", f"{operation}: argument {self.name!r} is missing")
            return self.default
        why = self._why_not(said)
        if why:
            raise Refused("amqp:invalid-field", f"{operation}: argument {self.name!r} {why}")
        return said

    def _why_not(self, said: Any) -> str:
        """Empty where it can be meant."""
        is_other = not isinstance(said, self.kind) or (self.kind is int and isinstance(said, bool))
        if is_other:
            return f"must be {self.kind.__name__}"
        if self.bounds is not None and not self.bounds[0] <= said <= self.bounds[1]:
            return f"is a whole number from {self.bounds[0]} to {self.bounds[1]}, not {said}"
        if self.choices and said not in self.choices:
            return f"is one of {', '.join(self.choices)}, not {said!r}"
        return ""


def needed(name: str, kind: type = str, bounds: tuple[int, int] | None = None) -> Argument:
    """An argument that has to be there."""
    return Argument(name, kind, is_needed=True, bounds=bounds)


def text(name: str, default: str | None = "", choices: tuple[str, ...] = ()) -> Argument:
    """A text that may be left out."""
    return Argument(name, str, default, choices=choices)


def number(name: str, default: int | None, bounds: tuple[int, int]) -> Argument:
    """A whole number that may be left out."""
    return Argument(name, int, default, bounds=bounds)


def flag(name: str, default: bool | None = False) -> Argument:
    """An argument that is yes or no, and what holds where it is left out."""
    return Argument(name, bool, default)


def checked(operation: str, declared: Sequence[Argument], said: Mapping[str, Any]) -> dict[str, Any]:
    """All declared arguments as they are meant. A word that does nothing is a mistake. Raises Refused."""
    unknown = sorted(set(said) - {each.name for each in declared})
    if unknown:
        known = f"there are: {', '.join(each.name for each in declared)}" if declared else "it takes none"
        raise Refused("amqp:invalid-field", f"{operation}: unknown argument {unknown[0]!r}; {known}")
    return {each.name: each.checked(operation, said.get(each.name)) for each in declared}


def is_text(value: Any) -> bool:
    """Whether a value, where it is a text, can be written: JSON may name halves of surrogate pairs."""
    if not isinstance(value, str):
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def queue_named(broker: Broker, request: AdminRequest, name: str = "name") -> Queue:
    """The queue that an argument names, which must exist. Raises Refused."""
    wanted: str = request.arguments[name]
    queue = broker.store.queues.get(wanted)
    if queue is None:
        raise Refused("amqp:not-found", f"{request.operation}: there is no queue {wanted!r}")
    return queue


def is_owed(queue: Queue) -> bool:
    """Whether what is in a queue is for another node."""
    return queue.kind.is_forwarding or (queue.kind.is_draining and queue.message_count > 0)


def check_may_drop(request: AdminRequest, queue: Queue) -> None:
    """Raises Refused where messages are for another node, and the request does not say that it means it."""
    if is_owed(queue) and not request.arguments[STORE_AND_FORWARD]:
        why = f"queue {queue.kind.name!r} holds messages for node {queue.kind.forwards_to}, which would never get them"
        advice = "cluster forget routes them anew; to drop them, say that a store-and-forward queue is meant"
        raise Refused("amqp:precondition-failed", f"{request.operation}: {why}; {advice}")


def check_is_not_forwarded(request: AdminRequest, queue: Queue) -> None:
    """Raises Refused where another node may have messages of the queue already: moved, they would be two."""
    if queue.kind.is_outbound:
        why = f"queue {queue.kind.name!r} holds messages for node {queue.kind.forwards_to}, which may have some of them"
        advice = "if that node does not come back, cluster forget routes them anew"
        raise Refused("amqp:precondition-failed", f"{request.operation}: {why}; {advice}")


def check_is_not_declared(broker: Broker, request: AdminRequest, queue: Queue) -> None:
    """Raises Refused where the file of options says that the queue is there, and the request does not say that it means
    such a queue."""
    is_meant: bool = request.arguments[CONFIGURED]
    if queue.kind.configured and not is_meant and declares(broker.offered.addresses, queue.kind.name):
        why = f"queue {queue.kind.name!r} is in broker.toml, so the next start or reload makes it again, empty"
        advice = "remove it there first, or say that a configured queue is meant"
        raise Refused("amqp:precondition-failed", f"{request.operation}: {why}; {advice}")


def selector_of(request: AdminRequest) -> Selector | None:
    """The argument `selector`, None where there is none or a blank one. Raises Refused with its column."""
    said: str = request.arguments["selector"]
    return compile_selector(said) if said.strip() else None
