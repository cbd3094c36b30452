"""What importing the client brings along: the protocol, and nothing of the broker."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

ROOMS = ("base", "client", "config", "wire", "amqp")


@pytest.mark.slow
@pytest.mark.parametrize("module", ["mqbroker.client", "mqbroker.client.sync", "mqbroker.client.types"])
def test_no_room_of_the_broker_and_no_other_library(module: str) -> None:
    code = f"import json, sys, {module}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    loaded = json.loads(done.stdout)
    rooms = {name.split(".")[1] for name in loaded if name.startswith("mqbroker.")}
    assert rooms <= set(ROOMS)
    assert not {"pydantic", "lark", "prometheus_client"} & {name.split(".")[0] for name in loaded}
