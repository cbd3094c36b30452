"""Runs a command on this host unless a later operation has begun: python -c TEXT PLACE NUMBER COMMAND….

Sent along with each step of an operation, so that one that was given up and is not gone does nothing more. Source:
docs/adr/0028-one-operation-at-a-time.md. Standard library of Python 3.9 only.
"""

import json
import os
import sys

place, number, *command = sys.argv[1:]
try:
    with open(place, encoding="utf-8") as file:
        noted = int(json.load(file)["number"])
except (OSError, ValueError, LookupError, TypeError):
    noted = 0
if noted > int(number):
    sys.exit(f"operation {noted} has begun since, so nothing more is done for {number}; see: mqctl operation show")
os.execvp(command[0], command)
