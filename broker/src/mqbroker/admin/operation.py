"""What the row of an operation says, and what follows from it: what is said of it, and how it is carried out."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mqbroker.admin.arguments import Argument, checked
from mqbroker.base.errors import PeerFault, Refused
from mqbroker.node.broker.broker import Broker
from mqbroker.node.values.inputs import AdminRequest

JSON_KINDS = {str: "text", int: "number", bool: "true or false", list: "list", dict: "object"}


class OperationEffect(enum.Enum):
    """What an operation does to the node. Whoever may speak to the admin socket may do all of it."""

    LOOKS = "looks"
    TAKES_PART = "takes part"  # as a client or another node would, and undone or over when its session ends
    CHANGES = "changes"
    ENDS = "ends"

    @property
    def leaves_notice(self) -> bool:
        """Whether the log says who did it and what came of it."""
        return self in (OperationEffect.CHANGES, OperationEffect.ENDS)

    @property
    def is_possible_while_stopping(self) -> bool:
        """Nothing may be journalled behind the journal's end."""
        return self in (OperationEffect.LOOKS, OperationEffect.ENDS)


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation. `run` takes the node and a request whose arguments are checked, and answers exactly once, now or
    later. `answer` names what is in the answer.
    """

    name: str
    run: Callable[[Broker, AdminRequest], None]
    answer: str
    arguments: tuple[Argument, ...] = ()
    effect: OperationEffect = OperationEffect.LOOKS

    @property
    def sentence(self) -> str:
        """What it does: the docstring of its function, without its name."""
        said = (self.run.__doc__ or "").split("\n\n")[0].removeprefix(f"`{self.name}`").lstrip(":")
        return " ".join(said.split())

    def shown(self) -> dict[str, Any]:
        """The row for those who ask what there is."""
        arguments = [
            {
                "name": each.name, "kind": JSON_KINDS[each.kind], "needed": each.is_needed, "default": each.default,
                "bounds": each.bounds, "choices": each.choices,
            }
            for each in self.arguments
        ]  # fmt: skip
        return {
            "operation": self.name, "effect": self.effect.value, "arguments": arguments, "answer": self.answer,
            "sentence": self.sentence,
        }  # fmt: skip

    def perform(self, broker: Broker, request: AdminRequest) -> None:
        """Carry out a request; whatever is wrong with it becomes its answer."""
        if not broker.is_running and not self.effect.is_possible_while_stopping:
            broker.reply_error(request.id, "amqp:connection:forced", f"{self.name}: the broker stops")
            return
        try:
            meant = checked(self.name, self.arguments, request.arguments)
            self.run(broker, AdminRequest(request.id, request.session, self.name, meant, request.uid))
        except (Refused, PeerFault) as error:
            broker.reply_error(request.id, error.condition, error.description)
