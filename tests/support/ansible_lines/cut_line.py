"""A connection to this machine whose line is cut, or whose commands fail, at tasks that the inventory names.

A host is a mount namespace of its own, in which systemd seems to run and nothing of ours is installed.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from ansible._internal._task import TaskContext
from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.connection.local import Connection as LocalConnection

DOCUMENTATION = """
name: cut_line
short_description: A line that breaks where it is told to
description: [For tests.]
author: [mqops maintainers]
version_added: 0.1.0
extends_documentation_fragment: [connection_pipelining]
options:
  become_success_timeout: {description: As in local., type: int, default: 10}
  become_strip_preamble: {description: As in local., type: bool, default: true}
  cut_at:
    description: The line is cut at this task.
    type: str
    default: ""
    vars: [{name: line_cut_at}]
  fails_at:
    description: Commands of this task fail.
    type: str
    default: ""
    vars: [{name: line_fails_at}]
  lib:
    description: Folder in the place of /var/lib of the host, where there is one.
    type: str
    default: ""
    vars: [{name: line_lib}]
  log:
    description: File for the names of tasks that come by.
    type: path
    required: true
    vars: [{name: line_log}]
"""
ROOM = "mount -t tmpfs none /run && mkdir -p /run/systemd/system"


class Connection(LocalConnection):
    """See above. Once cut, a line stays cut."""

    transport = "cut_line"

    def _here(self):
        return TaskContext.current().task.get_name()

    def _pass(self):
        log = Path(self.get_option("log"))
        if log.exists() and log.read_text().endswith("cut\n"):
            raise AnsibleConnectionFailure("the line is cut")
        task = self._here()
        with log.open("a") as file:
            file.write(f"{task}\n")
            if task == self.get_option("cut_at"):
                file.write("cut\n")
                raise AnsibleConnectionFailure("the line is cut")

    def exec_command(self, cmd, in_data=None, sudoable=True):
        """Run it in the room of the host."""
        self._pass()
        if self._here() == self.get_option("fails_at"):
            return 1, b"", b"the disk is on fire"
        lib = self.get_option("lib")
        own = f"mount --bind {shlex.quote(lib)} /var/lib && " if lib else ""
        room = f"unshare --user --map-root-user --mount /bin/sh -c {shlex.quote(f'{ROOM} && {own}{cmd}')}"
        return super().exec_command(room, in_data, sudoable)

    def put_file(self, in_path, out_path):
        """Files outside of /run are the same in every room."""
        self._pass()
        super().put_file(in_path, out_path)
