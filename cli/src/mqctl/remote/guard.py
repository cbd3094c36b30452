"""Runs a command on this host if the operation still has it: python -c TEXT PLACE NUMBER TOKEN HAS COMMAND….

Sent along with each step of an operation, so that one that was given up and is not gone does nothing more. HAS: `held`
where it has taken the host, else `away`: then it may not be noted there. Source:
docs/adr/0028-one-operation-at-a-time.md. Standard library of Python 3.9 only.
"""

import json
import os
import sys

place, number, token, has, *command = sys.argv[1:]
SHOW = "see: mqctl operation show"
try:
    with open(place, encoding="utf-8") as file:
        found = json.load(file)
    noted, is_held, is_own = int(found["number"]), bool(found["is_held"]), found["token"] == token
except (OSError, ValueError, LookupError, TypeError):
    noted, is_held, is_own = 0, False, False
if noted > int(number):
    sys.exit(f"operation {noted} has begun since, so nothing more is done for {number}; {SHOW}")
if is_held and not is_own:
    sys.exit(f"operation {noted} has the host, so nothing is done for {number}; {SHOW}")
if has == "held" and not (is_held and is_own and noted == int(number)):
    sys.exit(f"operation {number} is not noted any more in {place}, so nothing more is done for it; {SHOW}")
os.execvp(command[0], command)
