"""The project's own client as a consumer: `python -m demo.consumer`; what it needs comes as JSON on standard input.

{url, user, password, address, count, time_s}; it prints one body a line, and ends when nothing comes for `time_s`.
"""

from __future__ import annotations

import json
import sys
from urllib.parse import quote

from mqbroker.client import sync

CREDIT = 200


def main() -> int:
    task = json.loads(sys.stdin.readline())
    left = int(task["count"])
    scheme, _, place = task["url"].partition("://")
    who = f"{quote(task['user'], safe='')}:{quote(task['password'], safe='')}"
    with sync.connect(f"{scheme}://{who}@{place}") as connection:
        receiver = connection.receiver(task["address"], credit=CREDIT)
        while left:
            batch = receiver.receive_many(min(left, CREDIT), timeout=task["time_s"])
            if not batch:
                break
            for message in batch:
                print(message.text)
                message.accept()
            left -= len(batch)
    return 0


if __name__ == "__main__":
    sys.exit(main())
