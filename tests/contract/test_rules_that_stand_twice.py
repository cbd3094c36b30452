"""What one program knows and another has to repeat, as it cannot import it: both say the same of all that they find."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from mqbroker.io import tls
from mqctl.remote import give_back

from plugins.filter import certificate_faults
from plugins.module_utils import change_lock

HOLDER: dict[str, Any] = {
    "user": "ann", "machine": "control", "space": "boot pid:[1]", "pid": 7, "began": "100", "what": "a rollout",
    "since": "2026-01-05 10:12:00 UTC",
}  # fmt: skip
WRONG: tuple[Any, ...] = (None, 7, "8", "", True, ["x"], {})
KINDS = ("CERTIFICATE", "TRUSTED CERTIFICATE", "X509 CERTIFICATE", "CERTIFICATE REQUEST", "X509 CRL", "PRIVATE KEY")


def notes() -> list[str]:
    """What may be found in the place of a note: that of this run, cut off at each character, and with other values."""
    whole = json.dumps(HOLDER)
    changed = [HOLDER | {name: value} for name, value in product(HOLDER, WRONG)]
    lacking = [{name: value for name, value in HOLDER.items() if name != gone} for gone in HOLDER]
    more = [HOLDER | {"more": 1}, dict(reversed(HOLDER.items()))]
    odd = ["", " ", "{}", "[]", "7", "null", "{", f"{whole}x", f" {whole}\n", "\ud800"]
    cut_off = [whole[:end] for end in range(len(whole) + 1)]
    return cut_off + [json.dumps(one) for one in (*changed, *lacking, *more)] + odd


def test_the_note_of_a_run_is_judged_by_mqctl_as_by_the_collection(tmp_path: Path) -> None:
    assert (give_back.PLACE, give_back.FIELDS, give_back.SAME) == (
        change_lock.PLACE, change_lock.FIELDS, change_lock.SAME,
    )  # fmt: skip
    assert set(HOLDER) == set(change_lock.FIELDS)
    one, other = tmp_path / "one", tmp_path / "other"
    for text in notes():
        content = text.encode("utf-8", "surrogatepass")
        one.write_bytes(content)
        other.write_bytes(content)
        was_own = change_lock.give_back(HOLDER, str(one))
        said = give_back.give_back(HOLDER, str(other))
        assert one.read_bytes() == other.read_bytes(), text
        # Whoever is noted still is whom the next run meets.
        found = change_lock.take(HOLDER | {"pid": 9}, place=str(one))
        assert said == ("other" if found else "free"), text
        assert not (was_own and found), text


def test_what_is_noted_is_what_both_look_for(tmp_path: Path) -> None:
    place = tmp_path / "note"
    assert change_lock.take(HOLDER, place=str(place)) is None
    assert json.loads(place.read_text()) == HOLDER
    assert give_back.give_back(HOLDER | {"what": "packet filters", "since": "later"}, str(place)) == "free"
    assert place.read_text() == ""


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_forms_of_certificates_are_those_that_the_broker_takes(end: str) -> None:
    parts = ["", "Subject: CN = mq1", "-----BEGIN certificate-----", "----BEGIN CERTIFICATE----", "\u00e9"]
    parts += [f"-----BEGIN {kind}-----{end}AA=={end}-----END {kind}-----" for kind in KINDS]
    for some in product(parts, repeat=3):
        text = end.join(some)
        fault = tls.form_fault("a.pem", text.encode())
        assert certificate_faults.form_faults("a.pem", text) == ([fault] if fault else []), text
