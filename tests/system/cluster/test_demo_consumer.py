"""The consumer of the demo at one node gets what lies at another, in its order."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from demo.stage import ROOT
from tests.support.cluster_processes import WAIT_S, Make, Nodes, linked, wait_for

pytestmark = pytest.mark.system
COUNT = 1000


def test_what_lies_elsewhere_moves_to_the_consumer(make_broker: Make) -> None:
    one, two = Nodes(make_broker, 2, settings={"#": {"redistribution-delay": 0}}).start()
    linked(one, "mq1")
    linked(two, "mq0")
    sent = [f"parcel {number}" for number in range(COUNT)]
    one.admin("send", address="parcels", messages=[{"body": body, "durable": True} for body in sent])
    task = {"url": f"amqp://{two.host}:{two.port}", "user": two.user, "password": two.password,
            "address": "parcels", "count": COUNT, "time_s": WAIT_S}  # fmt: skip
    done = subprocess.run(
        [sys.executable, str(ROOT / "demo/consumer.py")], input=json.dumps(task) + "\n", capture_output=True, text=True,
        timeout=3 * WAIT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == sent
    wait_for(one, "nothing waits", lambda found: [row["depth"] for row in found["links"]] == [0])
    assert one.admin("status")["messages"] == two.admin("status")["messages"] == 0
