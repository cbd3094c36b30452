"""A command line from a dataclass: each field of `Options` is one option or argument, declared once.

typer reads the signature of a function. `add` makes a function whose signature are the fields of the dataclass; it
parses, builds the dataclass and hands it to `run(world, options)`, which alone acts. Fields that several commands have
live in the base classes below.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Protocol, get_type_hints

import typer

from mqctl import completion
from mqctl.errors import UsageError
from mqctl.exits import Exit, NagiosCode
from mqctl.output import Format, OutputShape
from mqctl.world import World, real_world

NARROWING: Final = ("limit", "host")  # options that say of which hosts a command is; without them it is of all


@dataclasses.dataclass(frozen=True, kw_only=True)
class CommonOptions:
    """What every command understands."""

    no_color: Annotated[
        bool, typer.Option("--no-color", help="No colours (also: NO_COLOR, TERM=dumb, and whenever not on a terminal).")
    ] = False
    verbose: Annotated[
        int, typer.Option("--verbose", "-v", count=True, help="Say more on standard error; up to -vvv.")
    ] = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReaderOptions(CommonOptions):
    """A command whose result is rows."""

    output: Annotated[Format, typer.Option("--output", "-o", help="How to write the result.")] = Format.TABLE
    json: Annotated[bool, typer.Option("--json", help="The same as -o json.")] = False
    columns: Annotated[str, typer.Option(help="Names of the columns to show, separated by commas.")] = ""

    @property
    def shape(self) -> OutputShape:
        """How rows are to be written: the format, and the names of columns."""
        names = tuple(name.strip() for name in self.columns.split(",") if name.strip())
        return OutputShape(Format.JSON if self.json else self.output, names)


@dataclasses.dataclass(frozen=True, kw_only=True)
class InventoryOptions(CommonOptions):
    """A command that works on a cluster of an inventory."""

    inventory: Annotated[
        list[Path] | None,
        typer.Option("--inventory", "-i", help="Inventory as for Ansible; may be repeated. [default: inventory.yml]"),
    ] = None
    cluster: Annotated[
        str,
        typer.Option(
            help="Which cluster (mq_cluster_name), where the inventory has several.", autocompletion=completion.clusters
        ),
    ] = ""
    vault_password_file: Annotated[
        Path | None, typer.Option(help="File with the password of vaulted files of the inventory.")
    ] = None


class CommandModule(Protocol):
    """A file under `commands/`."""

    Options: type[Any]
    run: Callable[[World, Any], int]


def add(app: typer.Typer, name: str, module: Any) -> None:
    """Put the command of `module` into `app`. Its help is the docstring of `run`."""
    options_type = module.Options

    def parse(context: typer.Context, **values: Any) -> None:
        _require_names(context, values)
        options = options_type(**values)
        world = real_world(no_color=options.no_color, verbosity=options.verbose)
        try:
            code = module.run(world, options)
        finally:
            world.close()
        if isinstance(code, NagiosCode):
            raise SystemExit(code)
        raise typer.Exit(int(code))

    parse.__signature__ = _signature(options_type)  # type: ignore[attr-defined]
    parse.__doc__ = inspect.getdoc(module.run)
    parse.__name__ = name.replace("-", "_")
    parse.__annotations__ = {}
    app.command(name)(parse)


def names_in(text: str) -> list[str]:
    """Names that stand in an option, separated by commas, or by colons as Ansible has it."""
    return [name for one in text.replace(":", ",").split(",") if (name := one.strip())]


def _require_names(context: typer.Context, values: Mapping[str, Any]) -> None:
    """An option that narrows a command down names something. Else it would be of all hosts, as where the variable of a
    shell is not set. Raises UsageError."""
    for one in context.command.params:
        source = context.get_parameter_source(one.name or "")
        is_given = one.param_type_name == "option" and source is not None and source.name != "DEFAULT"
        if one.name in NARROWING and is_given:
            given = str(values[one.name])
            if not names_in(given):
                raise UsageError(
                    f"{one.opts[0]} {given!r} names no host; nothing was done", "leave it out for all hosts"
                )


def _signature(options_type: type[Any]) -> inspect.Signature:
    hints = get_type_hints(options_type, include_extras=True)
    own_first = sorted(dataclasses.fields(options_type), key=lambda one: one.name not in options_type.__annotations__)
    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    return inspect.Signature([context, *(_parameter(one, hints[one.name]) for one in own_first)])


def _parameter(one: dataclasses.Field[Any], hint: Any) -> inspect.Parameter:
    default = inspect.Parameter.empty if one.default is dataclasses.MISSING else one.default
    return inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)


__all__ = ["CommandModule", "CommonOptions", "Exit", "InventoryOptions", "ReaderOptions", "add"]
