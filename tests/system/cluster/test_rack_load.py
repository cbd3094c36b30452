"""The load inside a rack ends with whom it was started by, whatever it is at."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE_S
from tests.support.rack_load import LEFT_ALONE

pytestmark = pytest.mark.system

ROOT = Path(__file__).resolve().parents[3]


def test_clients_whose_test_is_gone_go_too() -> None:
    """Here while they wait for an answer that never comes."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"amqp://app:canary@127.0.0.1:{silent.getsockname()[1]}"
        backlog = {"queue": "old", "uri": uri, "count": 1, "read_from": uri}
        said = {"queue": "orders", "producers": {}, "consumers": {}, "backlog": backlog}
        with subprocess.Popen(
            [sys.executable, "-m", "tests.support.rack_load"], cwd=ROOT, stdin=subprocess.PIPE, text=True
        ) as process:
            try:
                assert process.stdin is not None
                process.stdin.write(json.dumps(said) + "\n")
                process.stdin.flush()
                connection, _ = silent.accept()
                with connection:
                    process.stdin.close()
                    assert process.wait(PATIENCE_S) == LEFT_ALONE
            finally:
                process.kill()
