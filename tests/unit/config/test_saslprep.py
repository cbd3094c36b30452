"""SASLprep: the examples of RFC 4013 section 3, and what must not pass."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqbroker.base.errors import ConfigFault
from mqbroker.config.saslprep import TEXT_CHARACTERS_MAX, saslprep


@pytest.mark.parametrize(
    ("text", "prepared"),
    [
        ("I\u00adX", "IX"),
        ("user", "user"),
        ("USER", "USER"),
        ("\u00aa", "a"),
        ("\u2168", "IX"),
        ("a\u00a0b", "a b"),
        ("\u0627\u0031\u0628", "\u0627\u0031\u0628"),
    ],
)
def test_prepared(text: str, prepared: str) -> None:
    assert saslprep("name", text) == prepared


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\u00ad",
        "\u0007",
        "a\nb",
        "\u0627\u0031",
        "\u0627a\u0628",
        "\ue000",
        chr(0xD800),
        "\u0221",
        "x\u200e",
        "\ufffd",
    ],
)
def test_refused(text: str) -> None:
    with pytest.raises(ConfigFault):
        saslprep("name", text)


def test_length_is_bounded() -> None:
    assert saslprep("name", "x" * TEXT_CHARACTERS_MAX)
    with pytest.raises(ConfigFault, match="longer than"):
        saslprep("name", "x" * (TEXT_CHARACTERS_MAX + 1))


@given(st.text(max_size=50))
def test_twice_is_once(text: str) -> None:
    try:
        once = saslprep("password", text)
    except ConfigFault:
        return
    assert saslprep("password", once) == once


@pytest.mark.parametrize("text", ["canary\n", "canary\u0628", "canary" * 200])
def test_faults_never_show_the_text(text: str) -> None:
    with pytest.raises(ConfigFault) as caught:
        saslprep("password", text)
    assert "canary" not in str(caught.value)


def test_what_can_be_typed_in_ascii_stays_as_it_is_and_control_characters_are_refused() -> None:
    for number in range(128):
        text = f"a{chr(number)}b"
        if 32 <= number < 127:
            assert saslprep("name", text) == text
        else:
            with pytest.raises(ConfigFault, match="control character"):
                saslprep("name", text)
