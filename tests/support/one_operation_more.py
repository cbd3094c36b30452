"""`mqbroker` with one operation of the admin protocol more, which is declared by its row alone."""

from __future__ import annotations

import sys

from mqbroker.admin.arguments import needed, number
from mqbroker.admin.operation import Operation, OperationEffect
from mqbroker.admin.operations import OPERATIONS
from mqbroker.app.main import main
from mqbroker.node.broker.broker import Broker
from mqbroker.node.values.inputs import AdminRequest


def paint(broker: Broker, request: AdminRequest) -> None:
    """`paint`: give the node a colour."""
    said = request.arguments
    broker.reply(request.id, {"colour": said["colour"], "coats": said["coats"]})


ROW = Operation(
    "paint", paint, "colour, coats", (needed("colour"), number("coats", 2, (1, 9))), OperationEffect.CHANGES
)

if __name__ == "__main__":
    OPERATIONS[ROW.name] = ROW
    sys.exit(main(sys.argv[sys.argv.index("run") :]))
