"""Owns what `rack status` shows: the state of each host and the faults of each card."""

from __future__ import annotations

import json
from collections.abc import Sequence

from mqrack import faults, host, image, network
from mqrack.layout import Layout
from mqrack.plan import Card, Host, Plan

SCHEMA_VERSION = 1


def as_json(layout: Layout, plan: Plan) -> str:
    known = faults.load(layout)
    hosts = [_host(layout, member, known) for member in plan.hosts]
    facts = {"schema_version": SCHEMA_VERSION, "rack": plan.name, "image": image.recipe_hash(), "hosts": hosts}
    return json.dumps(facts, indent=2)


def as_table(layout: Layout, plan: Plan) -> str:
    known = faults.load(layout)
    rows = [("HOST", "STATE", "CARD", "ADDRESS", "FAULTS")]
    for member in plan.hosts:
        state = host.state(layout, member)
        for index, card in enumerate(member.cards):
            fault = known.get(network.port(member, card), faults.HEALTHY)
            first = (member.name, state) if index == 0 else ("", "")
            rows.append((*first, card.name, card.address, _words(fault)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(_line(row, widths) for row in rows)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _host(layout: Layout, member: Host, known: dict[str, faults.Fault]) -> dict[str, object]:
    cards = {card.name: _card(member, card, known) for card in member.cards}
    return {"name": member.name, "state": host.state(layout, member), "jump": member.jump, "cards": cards}


def _card(member: Host, card: Card, known: dict[str, faults.Fault]) -> dict[str, object]:
    fault = known.get(network.port(member, card), faults.HEALTHY)
    return {
        "network": card.network,
        "address": card.address,
        "cut": fault.cut,
        "loss_percent": fault.loss_percent,
        "delay_ms": fault.delay_ms,
    }


def _words(fault: faults.Fault) -> str:
    words = ["cut"] if fault.cut else []
    words += [f"loss {fault.loss_percent:g} %"] if fault.loss_percent else []
    words += [f"delay {fault.delay_ms:g} ms"] if fault.delay_ms else []
    return ", ".join(words) or "-"
