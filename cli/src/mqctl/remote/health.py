"""Says as one JSON document what the checks of a broker say: sent to its host by `mqctl health`, changes nothing.

Arguments: address and port of the broker's metrics, names of checks. Standard library of Python 3.9 only.
"""

from __future__ import annotations

import http.client
import json
import sys
from typing import Any

TIME_S = 10


def ask(address: str, port: int, name: str) -> dict[str, Any]:
    """One check; where it cannot be asked, it is not good, and says why."""
    connection = http.client.HTTPConnection(address, port, timeout=TIME_S)
    try:
        connection.request("GET", f"/checks/{name}")
        answer = json.loads(connection.getresponse().read())
        if not isinstance(answer, dict) or "ok" not in answer:
            raise ValueError("that is no check")
        return answer
    except (OSError, ValueError, http.client.HTTPException) as fault:
        return {"check": name, "ok": False, "why": f"{address}:{port} does not say: {fault}"}
    finally:
        connection.close()


def main() -> None:
    address, port, *names = sys.argv[1:]
    address = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)
    json.dump([ask(address, int(port), name) for name in names], sys.stdout)


if __name__ == "__main__":
    main()
