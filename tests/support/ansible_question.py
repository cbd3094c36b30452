"""The program that stands in for one of Ansible (ansible_forks.py): what it is asked for is done by a fork elsewhere.

It begins in a hundredth of a second, so it imports little, and nothing from outside of Python.
"""

from __future__ import annotations

import json
import os
import socket
import sys

SOCKET = "server"
OWN = "own"  # a link to Ansible's own program
QUESTION_BYTES_MAX = 200_000
STANDARD = 3  # input, output, errors
NOT_HERE = -1


def ask(folder: str) -> None:
    """Be the program: all that this process is asked for is done by a fork of the other one."""
    question = {"words": sys.argv[1:], "environment": dict(os.environ), "cwd": os.getcwd(), "umask": umask()}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as channel:
        channel.connect(os.path.join(folder, SOCKET))
        socket.send_fds(channel, [json.dumps(question).encode()], list(range(STANDARD)))
        code = int(channel.recv(QUESTION_BYTES_MAX) or 1)
    if code == NOT_HERE:
        own = os.path.realpath(os.path.join(folder, OWN))
        os.execv(own, [own, *sys.argv[1:]])
    os._exit(code)


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
