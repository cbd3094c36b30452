"""What somebody may change on a host behind the inventory's back: for each thing that a role manages, one way.

A plan has to show each, a rollout to mend it, and the next plan to be empty. `tasks`: tasks of roles that manage it,
as role: name; a contract test holds them against the roles, so that a task without a drift fails it.
"""

from __future__ import annotations

from dataclasses import dataclass

UNITS = "/etc/systemd/system"
PLACES = "broker: Make the folders, and give the units time to stop"
KEPT = "broker: Keep identities, users and the secret from others"
FILES = "broker: Write the unit and the options"
SERVICE = "broker: Let systemd do it"


@dataclass(frozen=True)
class Drift:
    """`command` is run on the host as root; the plan then has a line with `what` and `action`."""

    command: str
    what: str
    action: str
    tasks: tuple[str, ...] = ()


DRIFTS = (
    Drift("usermod --shell /bin/bash mq", "system user mq", "change", ("broker: Make the user mq",)),
    Drift("chmod 0777 /opt/mq", "folder /opt/mq", "change", ("release: Make the folders of releases",)),
    Drift("chmod 0700 /opt/mq/releases", "folder /opt/mq/releases", "change"),
    Drift("chmod 0777 /etc/mq", "folder /etc/mq", "change", (PLACES,)),
    Drift("chown 1 /var/lib/mq", "folder /var/lib/mq", "change"),
    Drift("chmod 0755 /etc/mq/default", "folder /etc/mq/default", "change"),
    Drift("chmod 0750 /var/lib/mq/default", "folder /var/lib/mq/default", "change"),
    Drift(f"chmod 0777 {UNITS}/mqbroker@default.service.d", f"folder {UNITS}/mqbroker@default.service.d", "change"),
    Drift(
        f"echo '[Service]' > {UNITS}/mqbroker@default.service.d/stop-timeout.conf; systemctl daemon-reload",
        f"file {UNITS}/mqbroker@default.service.d/stop-timeout.conf", "change",
    ),
    Drift("chmod 0644 /var/lib/mq/default/identity.json", "file /var/lib/mq/default/identity.json", "change", (KEPT,)),
    Drift(
        "echo 'the secret of somebody else' > /var/lib/mq/default/cluster-secret",
        "file /var/lib/mq/default/cluster-secret", "change", ("broker: Set the secret of the cluster",),
    ),
    Drift(
        "/opt/mq/current/bin/mqbroker users remove app --instance default", "user app", "create",
        ("broker: Set the users",),
    ),
    Drift(
        "echo by-hand-1 | /opt/mq/current/bin/mqbroker users set bob --stdin --instance default", "user bob", "delete"
    ),
    Drift("chown root /var/lib/mq/default/users.json", "file /var/lib/mq/default/users.json", "change"),
    Drift("chmod 0666 /etc/mq/default/broker.toml", "file /etc/mq/default/broker.toml", "change", (FILES,)),
    Drift("sed -i '6i # by hand' /etc/mq/default/broker.toml", "text of broker.toml", "replace"),
    Drift(f"echo '# by hand' >> {UNITS}/mqbroker@.service", "unit mqbroker@.service", "change"),
    Drift(f"chmod 0600 {UNITS}/mqbroker@.service", f"file {UNITS}/mqbroker@.service", "change"),
    Drift("systemctl disable mqbroker@default", "service at boot", "enable", (SERVICE,)),
    Drift(
        "cd /opt/mq/releases; for one in c b a; do mkdir $one; done; touch -d 2001-01-01 c; touch -d 2002-01-01 b",
        "release c", "remove", ("release: Remove the oldest releases",),
    ),
    Drift("mkdir /etc/mq/default/tls", "folder /etc/mq/default/tls", "remove", ("tls: Remove certificates and keys",)),
)  # fmt: skip
# Where there is a packet filter.
FILTERED = (
    Drift(
        "nft add rule inet mq input tcp dport 4711 accept",
        "packet filter in force",
        "change",
        ("firewall: Put the new rules in force",),
    ),
    Drift(
        "systemctl disable mq-firewall",
        "packet filter at boot",
        "enable",
        ("firewall: Have them in force after a boot",),
    ),
    Drift("chmod 0777 /etc/mq-firewall", "folder /etc/mq-firewall", "change", ("firewall: Make the folder of rules",)),
    Drift(
        "echo '# by hand' >> /etc/mq-firewall/candidate.nft",
        "file /etc/mq-firewall/candidate.nft",
        "change",
        ("firewall: Write the rules beside those that are in force",),
    ),
    Drift(
        "chmod 0666 /etc/mq-firewall/ruleset.nft",
        "file /etc/mq-firewall/ruleset.nft",
        "change",
        ("firewall: Keep the new rules", "firewall: Keep owner and mode of those that were confirmed"),
    ),
    Drift(
        f"echo '# by hand' >> {UNITS}/mq-firewall.service",
        f"file {UNITS}/mq-firewall.service",
        "change",
        ("firewall: Write the unit",),
    ),
    Drift(f"touch {UNITS}/mqbroker@.service", "unit as systemd has it", "read again"),
    # What else goes together with it.
    Drift("echo '{' > /var/lib/mq/default/users.json", "users", "replace"),
    Drift(
        "echo '#' >> $(ls /opt/mq/current/lib/python3*/site-packages/mqbroker/__init__.py)",
        "files of the release",
        "install",
    ),
)
# These cannot go together with the others.
ALONE = (
    Drift(
        "rm -r $(readlink -f /opt/mq/current)", "files of the release", "install",
        ("release: Copy the bundle", "release: Install it from the bundle alone", "release: Mark it as complete",
         "release: Remove what is left of one that is not whole"),
    ),
    Drift("systemctl mask --now mqbroker@default", "service", "start"),
    Drift("ln -sfn releases/none /opt/mq/current", "release", "change", ("release: Link the current release",)),
)  # fmt: skip
