"""A host of an inventory, behind a real sshd, whose brokers are processes of the test.

The host has `mqbroker` at its usual place only in name: sshd puts the test's own in its stead, whose instances are
below the folder of the test, each with its broker.toml; the same folder is one of `mqctl dev`. What a host notes of
operations is below that folder as well: commands have a /var/lib of their own.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from mqctl.nodes import BROKER

from tests.support.ssh_server import SshServer

PROGRAM = """#!{python}
import sys
sys.path[:0] = {path!r}
from mqbroker.app.main import main
words = sys.argv[1:]
if "--instance" in words:
    at = words.index("--instance")
    words[at : at + 2] = ["--config", {place!r} + "/" + words[at + 1] + "/broker.toml"]
sys.exit(main(words))
"""
IN_PLACE = """#!/bin/sh
command=$(printf %s "$SSH_ORIGINAL_COMMAND" | sed "s|{usual}|{place}/mqbroker|")
exec unshare --user --map-root-user --mount /bin/sh -c 'mount --bind "$0" /var/lib && exec /bin/sh -c "$1"' \
    {place}/notes "$command"
"""


def serve(folder: Path, *instances: dict[str, Any]) -> SshServer:
    """The host `mq1` with these instances, and `inventory.yml` in the folder."""
    for name, text in (("mqbroker", PROGRAM), ("in-place", IN_PLACE)):
        script = folder / name
        script.write_text(text.format(python=sys.executable, path=sys.path, place=str(folder), usual=BROKER))
        script.chmod(0o755)
    (folder / "notes").mkdir()
    server = SshServer(folder / "sshd", f"ForceCommand {folder / 'in-place'}")
    hosts = {"mq1": server.variables(mq_instances=list(instances))}
    common = {"mq_cluster_name": "main", "mq_cluster_secret": "a-secret-of-the-test"}
    inventory = {"brokers": {"hosts": hosts, "vars": common}}
    (folder / "inventory.yml").write_text(json.dumps(inventory))
    return server
