"""broker.toml from text: every fault at once, each with its path."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqbroker.base.errors import ConfigFault
from mqbroker.config.declarations.options import defaults
from mqbroker.config.file.completeness import TEXT_CHARACTERS_MAX
from mqbroker.config.file.load import parse
from mqbroker.config.slices import BrokerOptions


def good(text: str) -> BrokerOptions:
    options = parse(text)
    assert isinstance(options, BrokerOptions), [str(fault) for fault in options]
    return options


def faults(text: str) -> dict[str, str]:
    found = parse(text)
    assert isinstance(found, list), found
    return {fault.path: fault.why for fault in found}


def listener(**options: object) -> str:
    rows = {"name": '"clients"', "port": 5672, **{key.replace("_", "-"): value for key, value in options.items()}}
    return "[[listeners]]\n" + "".join(f"{key} = {value}\n" for key, value in rows.items())


def test_empty_file_means_defaults() -> None:
    assert good("") == defaults()


def test_values_arrive_in_their_slices() -> None:
    text = '[limits]\nlink-credit = 7\n[journal]\njournal-on-damage = "truncate"\n' + listener(backlog=5)
    options = good(text)
    assert options.limits.link_credit == 7
    assert options.journal.journal_on_damage == "truncate"
    assert [(item.name, item.port, item.backlog) for item in options.listeners] == [("clients", 5672, 5)]


def test_every_fault_is_reported_at_once_with_its_path() -> None:
    text = (
        '[node]\nname = "a b"\nnam = 1\n[limits]\nlink-credit = "5"\nlink_credit = 4\n[limit]\n'
        + listener(sasl_mechanisms='["PLAIN", "FOO"]', port=70000)
        + "[[listeners]]\nport = 1\n"
    )
    assert faults(text) == {
        "node.name": "must be 1 to 63 letters, digits, dots, dashes or underscores and start with a letter or digit, "
        "is 'a b'",
        "node.nam": "unknown option; did you mean name?",
        "limits.link-credit": "must be a whole number, is '5'",
        "limits.link_credit": "unknown option; did you mean link-credit?",
        "limit": "unknown option; did you mean limits?",
        "listeners.0.port": "must be at most 65535, is 70000",
        "listeners.0.sasl-mechanisms.1": (
            "must be one of 'EXTERNAL', 'SCRAM-SHA-512', 'SCRAM-SHA-256', 'PLAIN' or 'ANONYMOUS', is 'FOO'"
        ),
        "listeners.1.name": "is required and missing",
    }


def test_faults_between_options_are_reported_beside_others() -> None:
    text = "[limits]\nqueues-max = 0\n" + listener() + listener(name='"other"')
    assert set(faults(text)) == {"limits.queues-max", "listeners.1.port"}


def test_not_toml_says_where() -> None:
    assert "line 2" in faults("[node]\nname = \n")["file"]


def test_deep_nesting_is_a_fault() -> None:
    assert "file" in faults("x = " + "[" * 100_000)


def test_a_number_of_more_digits_than_python_takes_is_a_fault() -> None:
    assert faults("[limits]\nlink-credit = " + "9" * 5000)["file"].startswith("is not TOML: Exceeds the limit")


def test_overlong_text_is_refused_unread() -> None:
    assert "longer than" in faults("#" * (TEXT_CHARACTERS_MAX + 1))["file"]


@pytest.mark.option("listeners.allow-plaintext")
@pytest.mark.parametrize("address", ["0.0.0.0", "192.0.2.11", "::", "2001:db8::1"])
def test_plaintext_beyond_loopback_needs_permission(address: str) -> None:
    refused = listener(local_bind_address=f'"{address}"')
    why = faults(refused)["listeners.0.local-bind-address"]
    assert "the listener has no TLS" in why
    assert "allow-plaintext = true" in why
    assert good(refused + "allow-plaintext = true\n").listeners[0].local_bind_address == address


ASKING = {
    "tls_certificate_file": '"/c.pem"',
    "tls_key_file": '"/k.pem"',
    "tls_client_auth": '"optional"',
    "tls_client_ca_file": '"/a.pem"',
}
TLS = {"tls_certificate_file": '"/c.pem"', "tls_key_file": '"/k.pem"'}


def test_a_listener_with_tls_needs_no_permission() -> None:
    good_one = good(listener(local_bind_address='"0.0.0.0"', **TLS)).listeners[0]
    assert good_one.has_tls
    assert not good_one.allow_plaintext


@pytest.mark.parametrize(
    ("options", "path", "why"),
    [
        ({"tls_key_file": '"/k.pem"'}, "tls-key-file", "without tls-certificate-file"),
        ({"tls_client_ca_file": '"/a.pem"'}, "tls-client-ca-file", "without tls-certificate-file"),
        ({"tls_client_auth": '"optional"'}, "tls-client-auth", "without tls-certificate-file"),
        ({"tls_ciphers": '"HIGH"'}, "tls-ciphers", "without tls-certificate-file"),
        ({"tls_certificate_file": '"/c.pem"'}, "tls-key-file", "a certificate needs its private key"),
        ({**TLS, "tls_client_auth": '"required"'}, "tls-client-auth", "set tls-client-ca-file"),
        ({**TLS, "tls_client_ca_file": '"/a.pem"'}, "tls-client-ca-file", "tls-client-auth is none"),
        ({**TLS, "sasl_mechanisms": '["EXTERNAL", "PLAIN"]'}, "sasl-mechanisms", "no client is asked"),
        ({"sasl_mechanisms": '["EXTERNAL"]'}, "sasl-mechanisms", "no client is asked"),
        ({**ASKING, "sasl_mechanisms": '["EXTERNAL"]'}, "sasl-mechanisms", "is EXTERNAL alone"),
        ({**TLS, "tls_certificate_file": '"c.pem"'}, "tls-certificate-file", "must be an absolute path"),
        ({**TLS, "tls_ciphers": '"A B"'}, "tls-ciphers", "divided by colons"),
        ({**TLS, "tls_handshake_timeout_ms": "1"}, "tls-handshake-timeout-ms", "at least 100"),
    ],
)
def test_options_of_tls_that_do_not_go_together(options: dict[str, str], path: str, why: str) -> None:
    found = faults(listener(**options))
    assert list(found) == [f"listeners.0.{path}"]
    assert why in found[f"listeners.0.{path}"]


@pytest.mark.parametrize("address", ["127.0.0.1", "127.1.2.3", "::1"])
def test_loopback_needs_no_permission(address: str) -> None:
    assert good(listener(local_bind_address=f'"{address}"')).listeners[0].local_bind_address == address


@pytest.mark.parametrize("address", ["localhost", "eth0", "", "127.0.0.1:5672", "10.0.0.0/8"])
def test_listeners_are_bound_to_addresses_only(address: str) -> None:
    assert (
        "must be an IP address" in faults(listener(local_bind_address=f'"{address}"'))["listeners.0.local-bind-address"]
    )


@pytest.mark.parametrize(
    ("one", "other", "collide"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.2", False),
        ("0.0.0.0", "127.0.0.1", True),
        ("::", "127.0.0.1", True),
        ("0.0.0.0", "::1", False),
        ("::1", "::1", True),
        ("127.0.0.1", "::1", False),
    ],
)
def test_ports_collide_where_addresses_overlap(one: str, other: str, collide: bool) -> None:
    text = listener(local_bind_address=f'"{one}"', allow_plaintext="true") + listener(
        name='"b"', local_bind_address=f'"{other}"', allow_plaintext="true"
    )
    if collide:
        assert list(faults(text)) == ["listeners.1.port"]
    else:
        assert len(good(text).listeners) == 2


def test_names_of_listeners_are_distinct() -> None:
    assert "declared twice" in faults(listener() + listener(port=1))["listeners.1.name"]


def test_sizes_that_contradict_each_other() -> None:
    text = "[limits]\nmax-message-size-bytes = 2000000\nglobal-max-size-bytes = 1048576\n" + listener(
        max_frame_size_bytes=512
    )
    assert set(faults(text)) == {"limits.max-message-size-bytes", "listeners.0.frame-size-before-open-bytes"}


@pytest.mark.parametrize("names", ['["PLAIN", "PLAIN"]', "[]", '"PLAIN"'])
def test_mechanisms_are_a_list_without_doubles(names: str) -> None:
    assert "listeners.0.sasl-mechanisms" in faults(listener(sasl_mechanisms=names))


def test_booleans_and_numbers_are_not_mixed_up() -> None:
    text = "[journal]\njournal-sync = 1\ndisk-pending-bytes-max = true\n[limits]\nlink-credit = 2.0\n"
    assert set(faults(text)) == {"journal.journal-sync", "journal.disk-pending-bytes-max", "limits.link-credit"}


@pytest.mark.option("node.name")
def test_paths_follow_the_name_of_the_node() -> None:
    node = good('[node]\nname = "east"\n').node
    assert node.data_directory == "/var/lib/mq/east"
    assert node.admin_socket == "/run/mq/east/admin.sock"
    assert node.users_file == "/var/lib/mq/east/users.json"


@pytest.mark.parametrize("path", ["{nam}/x", "{name}", "relative", "/a\\u007f", "/a\\nb"])
def test_paths_must_be_absolute_and_without_unknown_placeholders(path: str) -> None:
    assert "node.data-directory" in faults(f'[node]\ndata-directory = "{path}"\n')


def test_socket_path_fits_into_a_socket_address() -> None:
    assert "at most 107" in faults(f'[node]\nadmin-socket = "/{"x" * 107}"\n')["node.admin-socket"]
    assert good(f'[node]\nadmin-socket = "/{"x" * 106}"\n')


@given(st.text(max_size=200))
def test_any_text_is_options_or_faults(text: str) -> None:
    found = parse(text)
    assert isinstance(found, BrokerOptions) or all(isinstance(fault, ConfigFault) for fault in found)


@given(
    st.dictionaries(
        st.sampled_from(["node", "listeners", "journal", "limits", "address-settings", "other"]),
        st.sampled_from(["1", "true", '"x"', "[]", "{}", "[1]", "{name = 1}", "[{port = 1}]", "[[]]", "1979-05-27"]),
        max_size=6,
    )
)
def test_any_shape_is_options_or_faults(tables: dict[str, str]) -> None:
    found = parse("".join(f"{name} = {value}\n" for name, value in tables.items()))
    assert isinstance(found, BrokerOptions) or found


def test_metrics_and_a_listener_do_not_share_a_port() -> None:
    text = listener(port=9672) + "[metrics]\nport = 9672\n"
    assert faults(text) == {"metrics.port": "port 9672 is taken by listeners.0 (clients); choose another port"}
    assert good(text + 'local-bind-address = "127.0.0.2"\n').metrics.port == 9672
    assert good(listener()).metrics.port == 0


def test_security_settings_are_checked_like_address_settings() -> None:
    text = """
[[security-settings]]
match = "#"
send = ["client", "Shop"]
[[security-settings]]
match = "#"
sent = ["client"]
[[security-settings]]
match = "orders.x*"
"""
    found = parse(text)
    assert isinstance(found, list)
    paths = sorted(fault.path for fault in found)
    assert paths == [
        "security-settings.0.send.1", "security-settings.1.match", "security-settings.1.sent",
        "security-settings.2.match",
    ]  # fmt: skip


def test_diverts_have_names_of_their_own_and_go_elsewhere() -> None:
    text = """
[[diverts]]
name = "a"
address = "orders"
forwarding-address = "audit"
[[diverts]]
name = "a"
address = "prices"
forwarding-address = "prices"
[[diverts]]
name = "b"
address = ""
"""
    found = parse(text)
    assert isinstance(found, list)
    paths = sorted(fault.path for fault in found)
    assert paths == [
        "diverts.1.forwarding-address",
        "diverts.1.name",
        "diverts.2.address",
        "diverts.2.forwarding-address",
    ]


@pytest.mark.parametrize("place", ["::", "::dead", "moved::"])
def test_a_queue_of_an_address_is_named_with_both_of_its_names(place: str) -> None:
    text = f'''
[[address-settings]]
match = "#"
dead-letter-address = "{place}"
expiry-address = "{place}"
[[diverts]]
name = "d"
address = "orders"
forwarding-address = "{place}"
'''
    found = faults(text)
    wanted = ["address-settings.0.dead-letter-address", "address-settings.0.expiry-address",
              "diverts.0.forwarding-address"]  # fmt: skip
    assert list(found) == wanted
    assert all("address::queue" in why for why in found.values())
    assert good(text.replace(place, "moved::dead")).diverts[0].forwarding_address == "moved::dead"


@pytest.mark.parametrize("head", ["address-settings", "security-settings"])
def test_tables_for_the_same_addresses_are_declared_twice_however_they_are_spelled(head: str) -> None:
    matches = ("#", "a.*.#", "a.#", "a.#.*", "*", "#.#", "a.#")
    found = faults("".join(f'[[{head}]]\nmatch = "{match}"\n' for match in matches))
    assert found == {
        f"{head}.{number}.match": f"{match} is declared twice, first as {head}.{first}; put both into one table"
        for number, match, first in (
            (3, "a.#.*", "1 as a.*.#, which matches the same"),
            (5, "#.#", "0 as #, which matches the same"),
            (6, "a.#", "2"),
        )
    }
