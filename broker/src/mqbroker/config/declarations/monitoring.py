"""Options of metrics and health, declared as those in options.py are."""

from __future__ import annotations

from mqbroker.config.declarations.declaration import IpAddress, OptionTable, option


class MetricTable(OptionTable):
    """Metrics and health over HTTP. They show names and numbers, never messages; whoever reaches the port is served."""

    local_bind_address: IpAddress = option(
        "127.0.0.1", "IP address of this host that metrics and health are served on."
    )
    port: int = option(0, "TCP port of metrics and health; 0 serves neither.", ge=0, le=65535)
    connections_max: int = option(
        32, "HTTP connections at the same time; further ones are answered with 503.", reload=True, ge=1, le=1000
    )
