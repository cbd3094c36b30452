"""Where a command finds its options: `--config PATH`, or the standard place of `--instance NAME`.

To understand options takes most of the program, a quarter of a second of it. Commands that are told everything by their
arguments run by the dozen in a rollout, so what only options need is imported where they are read.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from mqbroker.base.errors import ConfigFault, MqError
from mqbroker.base.text import one_line

if TYPE_CHECKING:
    from mqbroker.config.slices import BrokerOptions

CONFIG_DIRECTORY = Path("/etc/mq")


class UnusableOptions(MqError):
    """The file of options cannot be used; `faults` has everything that is wrong with it."""

    def __init__(self, file: Path, faults: list[ConfigFault]) -> None:
        super().__init__(f"{file}: {len(faults)} fault(s) in the options")
        self.file = file
        self.faults = faults


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`--config` and `--instance`, which exclude each other."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--config", metavar="PATH", type=Path, help="the broker.toml to use")
    group.add_argument(
        "--instance",
        metavar="NAME",
        default="default",
        help=f"use {CONFIG_DIRECTORY}/NAME/broker.toml (default: default)",
    )


def path_of(args: argparse.Namespace) -> Path:
    """The file that the arguments mean."""
    if args.config is not None:
        return Path(args.config)
    return CONFIG_DIRECTORY / str(args.instance) / "broker.toml"


def read(file: Path, *, may_wait: bool = True) -> BrokerOptions:
    """The options of one file. Raises Unusable with every fault.

    `may_wait`: a FIFO is read as well, as whoever calls a command may hand one over. A broker that runs must not.
    """
    return understood(file, text_of(file, may_wait=may_wait))


def text_of(file: Path, *, may_wait: bool = True) -> str:
    """What the file holds, as far as anybody would read it. Raises Unusable."""
    from mqbroker.config.file.completeness import TEXT_CHARACTERS_MAX
    from mqbroker.io.files import regular_files

    try:
        with file.open("rb") if may_wait else regular_files.opened(file) as stream:
            # However much there is: one character too many is enough for `parse` to say so.
            return io.TextIOWrapper(stream, encoding="utf-8", newline="").read(TEXT_CHARACTERS_MAX + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise UnusableOptions(
            file, [ConfigFault("file", f"cannot be read ({error}); name another one with --config")]
        ) from None


def understood(file: Path, text: str) -> BrokerOptions:
    """The options of the text that was read from a file. Raises Unusable with every fault."""
    from mqbroker.config.file.load import parse

    options = parse(text)
    if isinstance(options, list):
        raise UnusableOptions(file, options)
    return options


def sound(file: Path, text: str) -> BrokerOptions:
    """As `understood`; selectors are good as well, so that a broker can take the options. Raises Unusable."""
    options = understood(file, text)
    faults = _selector_faults(options)
    if faults:
        raise UnusableOptions(file, faults)
    return options


def checked(file: Path, text: str | None = None) -> BrokerOptions:
    """As `sound`; files that listeners need for TLS are good as well, and it sets something. Raises Unusable.

    `text`: what the file holds, where somebody has read it. The exception has every fault.
    """
    from mqbroker.config.file import completeness
    from mqbroker.io.files import cluster_secret
    from mqbroker.io.sockets import tls

    if text is None:
        text = text_of(file)
    options = understood(file, text)
    emptied = completeness.emptied_fault_of(text)
    faults = [emptied] if emptied else []
    faults += tls.faults_of(options) + _selector_faults(options) + cluster_secret.faults_of(options)
    if faults:
        raise UnusableOptions(file, faults)
    return options


def _selector_faults(options: BrokerOptions) -> list[ConfigFault]:
    from mqbroker.core.address import deployed_addresses, diverts

    return deployed_addresses.faults_of(options.addresses) + diverts.faults_of(options.diverts)


def options_of(args: argparse.Namespace) -> BrokerOptions:
    """The options that the arguments mean. Raises Unusable."""
    return read(path_of(args))


def say(text: str, *, to_errors: bool = False) -> None:
    """One line for people, whatever is in it: names and contents of files come from others."""
    print(one_line(text), file=sys.stderr if to_errors else sys.stdout)


def complain(error: MqError) -> None:
    """One plain line on standard error for each thing that is wrong."""
    if isinstance(error, UnusableOptions):
        _lines(f"mqbroker: {error.file}: {fault}" for fault in error.faults)
    else:
        _lines([f"mqbroker: {error}"])


def doubt(file: Path, doubts: Iterable[ConfigFault]) -> None:
    """One line on standard error for each thing that is allowed and hardly meant."""
    _lines(f"mqbroker: {file}: warning: {one}" for one in doubts)


def _lines(lines: Iterable[str]) -> None:
    for line in lines:
        say(line, to_errors=True)
