"""A CA and what it signs, the folder that they are kept in, and what counts as missing."""

from __future__ import annotations

import datetime
import itertools
import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from mqbroker.admin.certificates import level_of, lives_in
from mqbroker.config.inventory.inventory import host_variables
from mqbroker.node.values.inputs import CertificateExpiry
from mqctl.certificates.authority import Issuer, Span, general_name, issue, names_of, new_authority, permits
from mqctl.certificates.folder import NEXT, Folder, Phase, Step
from mqctl.certificates.issuing import Missing, digests, make, missing_of, state_of
from mqctl.certificates.names import InstanceNames, nodes_of
from mqctl.errors import CommandError, UsageError
from mqctl.inventory import Host

NOW = datetime.datetime(2031, 5, 1, 12, tzinfo=datetime.UTC)
NODE = InstanceNames("mq1", "default", ("mq1", "192.0.2.11", "2001:db8::1"))
DAY = datetime.timedelta(days=1)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path / "tls" / "main")
    made.write_authority(new_authority("main", Span(NOW, 3650)))
    return made


def signed(
    folder: Folder, node: InstanceNames = NODE, days: int = 365, at: datetime.datetime = NOW
) -> x509.Certificate:
    make(folder, [Missing(node, "")], Span(at, days), lambda _: None)
    found = folder.node(node.host, node.instance)
    assert found is not None
    return found


def why(folder: Folder, node: InstanceNames = NODE, at: datetime.datetime = NOW) -> list[str]:
    return [one.why for one in missing_of(folder, [node], at)]


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> None:
    """Both ends in memory; raises what either end raises."""
    pipes = [ssl.MemoryBIO() for _ in range(4)]
    ends = [server.wrap_bio(pipes[0], pipes[1], server_side=True),
            client.wrap_bio(pipes[2], pipes[3], server_hostname=name)]  # fmt: skip
    for turn in range(6):
        for end in ends:
            try:
                if turn < 5:
                    end.do_handshake()
                else:
                    end.read()
            except ssl.SSLWantReadError:
                pass
        pipes[2].write(pipes[1].read())
        pipes[0].write(pipes[3].read())


def contexts(folder: Folder) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A cluster listener and a node that connects to it, with the files as they are."""
    certificate, key = folder.node_files(NODE.host, NODE.instance)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_verify_locations(folder.trust_file)
    server.verify_mode = ssl.CERT_REQUIRED
    client = ssl.create_default_context(cafile=str(folder.trust_file))
    for one in (server, client):
        one.load_cert_chain(certificate, key)
        one.verify_flags |= ssl.VERIFY_X509_STRICT
    return server, client


def test_a_ca_signs_and_does_nothing_else() -> None:
    made = new_authority("main", Span(NOW, 3650)).certificate
    basic = made.extensions.get_extension_for_class(x509.BasicConstraints)
    assert (basic.critical, basic.value.ca, basic.value.path_length) == (True, True, 0)
    usage = made.extensions.get_extension_for_class(x509.KeyUsage)
    assert (usage.critical, usage.value.key_cert_sign, usage.value.crl_sign) == (True, True, True)
    assert not usage.value.digital_signature
    assert made.not_valid_after_utc == NOW + 3650 * DAY
    assert made.public_key().curve.name == "secp256r1"  # type: ignore[union-attr]


def test_a_node_is_named_and_good_for_both_ends() -> None:
    issuer = new_authority("main", Span(NOW, 3650))
    made = issue(issuer, NODE.common_name, NODE.names, Span(NOW, 365)).certificate
    assert names_of(made) == NODE.names
    assert [one.value for one in made.subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == ["mq1/default"]
    extended = made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert set(extended) == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    assert not made.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert made.not_valid_before_utc < NOW
    again = issue(issuer, NODE.common_name, NODE.names, Span(NOW, 365))
    assert again.certificate.serial_number != made.serial_number
    assert again.certificate.public_key() != made.public_key()
    assert "key" not in repr(again).replace("certificate", "")


def test_a_node_does_not_outlive_its_ca() -> None:
    issuer = new_authority("main", Span(NOW, 10))
    assert issue(issuer, "a/b", ["a"], Span(NOW, 365)).certificate.not_valid_after_utc == NOW + 10 * DAY


@pytest.mark.parametrize(
    ("permitted", "name", "is_permitted"),
    [
        ([], "elsewhere.example", True),
        (["mq.example.org"], "mq.example.org", True),
        ([".mq.example.org"], "a.MQ.example.org", True),
        (["mq.example.org"], "xmq.example.org", False),
        (["mq.example.org"], "192.0.2.1", True),
        (["192.0.2.0/24"], "192.0.2.200", True),
        (["192.0.2.0/24"], "192.0.3.1", False),
        (["192.0.2.0/24"], "2001:db8::1", False),
        (["192.0.2.0/24", "2001:db8::/32"], "2001:db8::1", True),
        (["192.0.2.0/24"], "anything", True),
    ],
)
def test_name_constraints(permitted: list[str], name: str, is_permitted: bool) -> None:
    issuer = new_authority("main", Span(NOW, 10), permitted)
    assert permits(issuer.certificate, general_name(name)) is is_permitted
    if is_permitted:
        assert names_of(issue(issuer, "a/b", [name], Span(NOW, 5)).certificate) == (name,)
    else:
        with pytest.raises(CommandError, match="may not sign for"):
            issue(issuer, "a/b", [name], Span(NOW, 5))


@pytest.mark.parametrize("permitted", ["a b", "192.0.2.0/33", "x/y", ""])
def test_what_cannot_be_permitted(permitted: str) -> None:
    with pytest.raises(UsageError, match="neither a network nor a domain"):
        new_authority("main", Span(NOW, 10), [permitted])


def test_keys_are_for_their_owner_alone(folder: Folder) -> None:
    signed(folder)
    keys = sorted(folder.path.rglob("*.key"))
    assert [one.name for one in keys] == ["ca.key", "default.key"]
    assert {stat.S_IMODE(one.stat().st_mode) for one in keys} == {0o600}
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    assert [one for one in folder.path.rglob("*.pem") if b"PRIVATE" in one.read_bytes()] == []


def test_nothing_is_missing_that_is_good_for_long_enough(folder: Folder) -> None:
    assert why(folder) == ["there is none"]
    signed(folder)
    assert why(folder) == []
    assert why(folder, at=NOW + 334 * DAY) == []
    assert why(folder, at=NOW + 336 * DAY) == ["expires soon"]
    assert why(folder, at=NOW + 366 * DAY) == ["expired"]
    assert why(folder, InstanceNames("mq1", "default", (*NODE.names, "new"))) == ["it lacks new"]
    assert why(folder, InstanceNames("mq1", "default", NODE.names[:1])) == []
    folder.write_authority(new_authority("main", Span(NOW, 3650)))
    assert why(folder) == ["another CA signed it"]


def test_a_short_life_is_not_always_nearly_over(folder: Folder) -> None:
    made = signed(folder, days=6)
    assert [state_of(made, NOW + day * DAY) for day in (0, 3, 5, 7)] == ["ok", "ok", "expires soon", "expired"]


@pytest.mark.parametrize("days", [1, 6, 20, 89, 90, 365])
def test_a_broker_warns_of_what_is_shown_as_ending_and_of_nothing_else(folder: Folder, days: int) -> None:
    made = signed(folder, days=days)
    ((begin_s, end_s),) = lives_in(made.public_bytes(Encoding.PEM))
    ending = CertificateExpiry("clients", "tls-certificate-file", "/c.pem", begin_s, end_s)
    said = set()
    for hour in range(-days * 24, 2):
        now = made.not_valid_after_utc + datetime.timedelta(hours=hour)
        state = state_of(made, now)
        said.add(state)
        assert (state == "ok") is (level_of(ending, int(now.timestamp())) is None), f"{hour} h from the end"
    assert said == {"ok", "expires soon", "expired"}


def test_a_pair_that_was_cut_off_counts_as_missing(folder: Folder) -> None:
    signed(folder)
    certificate, _ = folder.node_files("mq1", "default")
    before = certificate.read_bytes()
    signed(folder)
    certificate.write_bytes(before)
    assert why(folder) == ["there is none"]
    assert digests(folder, "mq1", "default")["server.pem"] is None


def test_no_ca_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as raised:
        missing_of(Folder(tmp_path), [NODE], NOW)
    assert raised.value.attempt == "mqctl tls init, or set mq_tls: off in the inventory"


def test_an_expired_ca_signs_nothing(folder: Folder) -> None:
    with pytest.raises(CommandError, match="expired"):
        signed(folder, at=NOW + 4000 * DAY)


def test_a_key_that_is_not_that_of_the_ca(folder: Folder) -> None:
    (folder.path / "ca.key").write_bytes(b"nonsense")
    with pytest.raises(CommandError, match="holds no EC key"):
        folder.issuer()
    other = new_authority("main", Span(NOW, 10))
    Folder(folder.path.parent / "other").write_authority(other)
    (folder.path.parent / "other" / "ca.key").replace(folder.path / "ca.key")
    with pytest.raises(CommandError, match="is not the key of"):
        folder.issuer()


@pytest.mark.parametrize("name", ["../x", "a/b", ".hidden", ""])
def test_names_that_are_no_files(folder: Folder, name: str) -> None:
    with pytest.raises(UsageError, match="cannot be the name of a file"):
        folder.node_files(name, "default")


def test_every_step_of_every_phase() -> None:
    allowed = {(phase, step): NEXT.get((phase, step)) for phase, step in itertools.product(Phase, Step)}
    assert {key: value for key, value in allowed.items() if value} == {
        (Phase.STABLE, Step.BEGIN): Phase.TRUSTED,
        (Phase.TRUSTED, Step.SWITCH): Phase.SIGNING,
        (Phase.SIGNING, Step.FINISH): Phase.STABLE,
    }


def test_both_cas_are_trusted_until_the_change_is_finished(tmp_path: Path) -> None:
    now = datetime.datetime.now(datetime.UTC)  # contexts compare with the clock of this machine
    folder = Folder(tmp_path / "main")
    folder.write_authority(new_authority("main", Span(now, 3650)))
    signed(folder, at=now)
    old_server, old_client = contexts(folder)
    handshake(old_server, old_client, "mq1")
    folder.write_authority(new_authority("main", Span(now, 3650)), "ca-next")
    assert folder.phase is Phase.TRUSTED
    assert why(folder, at=now) == []  # the old one signs
    middle_server, middle_client = contexts(folder)
    folder.switch()
    assert (folder.phase, why(folder, at=now)) == (Phase.SIGNING, ["another CA signed it"])
    assert not (folder.path / "ca-next.key").exists()
    signed(folder, at=now)
    new_server, new_client = contexts(folder)
    # Whoever was told of the new CA meets both; whoever was not does not.
    for server, client in itertools.product((middle_server, new_server), (middle_client, new_client)):
        handshake(server, client, "192.0.2.11")
    with pytest.raises(ssl.SSLError):
        handshake(new_server, old_client, "mq1")
    folder.finish()
    assert (folder.phase, list(folder.authorities())) == (Phase.STABLE, ["ca"])
    with pytest.raises(ssl.SSLError):
        handshake(contexts(folder)[0], middle_client, "mq1")  # it still shows what the old one signed


def test_a_switch_that_was_cut_off_is_completed(folder: Folder) -> None:
    made = new_authority("main", Span(NOW, 3650))
    folder.write_authority(made, "ca-next")
    (folder.path / "ca-previous.pem").write_bytes((folder.path / "ca.pem").read_bytes())
    assert folder.phase == Phase.TRUSTED.value  # cut off here, it is done again
    (folder.path / "ca-next.pem").replace(folder.path / "ca.pem")
    issuer = folder.issuer()
    assert isinstance(issuer, Issuer)
    assert issuer.certificate == made.certificate
    assert folder.phase == Phase.SIGNING.value


def node_names(host: str, address: str | None, **variables: object) -> dict[str, tuple[str, ...]]:
    own = {"mq_cluster_name": "main", "mq_cluster_secret": "0123456789abcdef", **variables}
    return {one.instance: one.names for one in nodes_of(Host(host, "main", own, {}), host_variables(own), address)}


def test_names_of_a_node() -> None:
    assert node_names("mq1", None, ansible_host="192.0.2.11") == {
        "default": ("mq1", "192.0.2.11", "127.0.0.1", "localhost")
    }
    many = node_names(
        "mq1", "198.51.100.11", ansible_host="mq1.example.org", mq_cluster_interface="eth1",
        mq_tls_names=["amqp.example.org", "203.0.113.5"],
        mq_instances=[{"name": "a"}, {"name": "b", "port_offset": 10}],
        mq_connectors=[{"name": "c", "port": 5673, "host": "cluster.example.org"}],
    )  # fmt: skip
    names = ("mq1", "mq1.example.org", "198.51.100.11", "cluster.example.org", "amqp.example.org", "203.0.113.5")
    assert many == {"a": names, "b": names}
    assert node_names("of two words", None, mq_local_bind_address="0.0.0.0") == {"default": ()}
