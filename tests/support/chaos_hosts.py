"""Three hosts that are one cluster, as cells of faults find and leave them (tests/support/chaos.py).

Data of the brokers lies on a small file system of its own, so that it can be full, and be what a kernel makes of a file
system that it finds broken: read-only.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.support.last_release import bundle
from tests.support.rack_site import Rack, Site

HOSTS = ("mq1", "mq2", "mq3")
ENDED = "== "  # begins the line that says how a command did
UNIT = "mqbroker@default.service"
DATA = "/var/lib/mq"
MOUNT = f"mount -o loop,errors=remount-ro /disk.img {DATA}"
# Hosts of a rack have no block devices; all share those of this machine.
DISK = f"""
test -e /disk.img || {{ truncate -s 4G /disk.img; mkfs.ext4 -q -F /disk.img; mkdir -p {DATA}; }}
cat > /usr/local/sbin/mount-data <<'END'
#!/bin/sh -e
test -e /dev/loop-control || mknod -m 0660 /dev/loop-control c 10 237
for number in 0 1 2 3 4 5 6 7; do test -e /dev/loop$number || mknod -m 0660 /dev/loop$number b 7 $number; done
mountpoint -q {DATA} || {MOUNT}
END
chmod 0755 /usr/local/sbin/mount-data
cat > /etc/systemd/system/data.service <<'END'
[Unit]
Before={UNIT}
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/sbin/mount-data
[Install]
WantedBy=multi-user.target
END
systemctl enable -q data.service; systemctl start data.service
"""
TOLD_OF_OTHERS = " client_connector_ref: clients,"


@dataclass
class Stage:
    """Three hosts that are one cluster, and what one cell left there for the next."""

    site: Site
    rack: Rack
    inventory: str
    options: str
    credit: int = 100
    cells: int = 0
    is_of_last_release: bool = False
    has_options_of_then: bool = False
    backup: str = ""  # the last one that was made
    said: list[str] = field(default_factory=list)  # by all commands of the cell that is played

    def in_host(self, host: str, script: str) -> str:
        return self.rack("exec", host, "--", "sh", "-c", script)

    def is_serving(self, host: str) -> bool:
        return self.in_host(host, f"systemctl is-active {UNIT}; true").strip() == "active"

    def change(self) -> None:
        """Another option, for which every broker has to be restarted."""
        self.credit += 1
        self.has_options_of_then = False
        self.site.set_options(f"{self.options}mq_broker_options: {{limits: {{link_credit: {self.credit}}}}}\n")

    def note(self, words: Sequence[str], code: int, began_s: float) -> None:
        """How a command ended, below what it said."""
        self.said.append(f"{ENDED}{' '.join(words)}: exit code {code} after {time.monotonic() - began_s:.0f} s\n")

    def bring_to(self, *, is_last_release: bool) -> None:
        """To this release with its options, or to the last one, unless it is there.

        Brokers of the last one do not tell clients of other nodes: they did not answer all that they took in at a stop,
        and who goes on elsewhere sends that again.
        """
        assert TOLD_OF_OTHERS in self.options
        if is_last_release and not self.is_of_last_release:
            self.has_options_of_then = True
            self.site.set_options(self.options.replace(TOLD_OF_OTHERS, ""))
            self._roll_out("--bundle", str(bundle()))
        elif not is_last_release and self.has_options_of_then:
            self.change()
            self._roll_out()
        self.is_of_last_release = is_last_release

    def _roll_out(self, *words: str) -> None:
        self.site.run("rollout", "--yes", *words)
        self.well()

    def well(self) -> None:
        """All brokers run, and a canary has crossed each link."""
        self.site.run("health", "--until-healthy", "--timeout", "120")

    def converged(self) -> None:
        """Nothing is left to do, nobody holds a host, and all are linked and well."""
        self.well()
        of_last = ("--bundle", str(bundle())) if self.is_of_last_release else ()
        assert self.site.rows("plan", *of_last) == []
        assert {row["state"] for row in self.site.rows("operation", "show")} == {"free"}
