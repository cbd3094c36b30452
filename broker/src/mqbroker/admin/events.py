"""The last notices of the node, to be looked through and followed."""

from __future__ import annotations

from mqbroker.base.notice import Level
from mqbroker.node.broker.broker import Broker
from mqbroker.node.values.inputs import AdminRequest

LIMIT_MAX = 2_000
LIMIT = 100
POSITION_MAX = 2**53
LEVELS = {level.name.lower(): level for level in Level}


def show(broker: Broker, request: AdminRequest) -> None:
    """`events`: the last ones, or those behind a position. `level` is the least that matters; a `name` may end in `*`.

    `position` is where to go on; `missed` says that some behind the wanted position are not kept any more.
    """
    said = request.arguments
    level, name, limit = said["level"], said["name"], said["limit"]
    is_following, after = said["after"] is not None, said["after"] or 0
    happenings = broker.event_ring
    wanted = [
        each
        for each in happenings.after(after)
        if each.notice.level <= LEVELS[level] and _is_named(each.notice.event, name)
    ]
    is_cut = len(wanted) > limit
    if is_cut:
        wanted = wanted[:limit] if is_following else wanted[-limit:]
    rows = [
        {
            "position": position,
            "time_ms": time_ms,
            "level": notice.level.name.lower(),
            "event": notice.event,
            "fields": notice.fields,
        }
        for position, time_ms, notice in wanted
    ]
    position = wanted[-1].position if is_cut and is_following else happenings.position
    is_missed = is_following and after + 1 < happenings.first <= happenings.position
    broker.reply(request.id, {"events": rows, "position": position, "missed": is_missed})


def _is_named(event: str, name: str) -> bool:
    return event.startswith(name[:-1]) if name.endswith("*") else event == name
