"""The training of the native build (broker/native_training.py): all that is compiled is run, always the same way.

It is watched where it runs as Python: what is compiled of a function that was called here is called there as well. That
a build takes the profile in is shown in tests/system/broker/test_native.py.
"""

from __future__ import annotations

import builtins
import dataclasses
import importlib
import importlib.util
import json
import os
import pkgutil
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from types import ModuleType

import mqbroker
import pytest

BROKER = Path(__file__).resolve().parents[2] / "broker"
DIVISOR = "100"
TIME_S_MAX = 60
# Counts calls of functions by module and name. Modules are imported before, as that is no training. The clock of the
# system runs `pace` times as fast, as it does for a machine that is slower.
WATCH = """
import importlib, json, sys, time
from collections import Counter
divisor, pace, *modules = sys.argv[1:]
def faster(clock):
    began_ns = clock()
    return lambda: began_ns + (clock() - began_ns) * int(pace)
time.monotonic_ns, time.time_ns = faster(time.monotonic_ns), faster(time.time_ns)
import native_training
files = {importlib.import_module(f"mqbroker.{name.replace('/', '.')}").__file__: name for name in modules}
calls = Counter()
def note(frame, event, argument):
    if event == "call" and frame.f_code.co_filename in files:
        calls[f"{files[frame.f_code.co_filename]}:{frame.f_code.co_qualname}"] += 1
sys.setprofile(note)
native_training.train(int(divisor))
sys.setprofile(None)
print(json.dumps(calls))
"""
# Compiled, and not run by the training.
WITHOUT = {
    "base/native": "one constant",
    "base/look": "one flag",
    "base/checksum": "one name",
    "core/queue/picking": "purges and moves of whole queues",
    "journal/places": "pages",
    "node/amqp/listeners/rated_peer": "listeners that bound frames, and it derives from what is compiled",
    **dict.fromkeys(
        ("core/address/address_store", "core/cluster/cluster_store", "core/paging/paging_store"),
        "declarations: what they declare is run in the store",
    ),
    "core/queue/redistributor": "consumers that went to another node",
    "io/disk/disk": "it has threads and real files: what it does next depends on how long they take",
}
SLOWER = 1000


@pytest.fixture
def hook() -> ModuleType:
    """broker/native_build.py, which no package holds."""
    spec = importlib.util.spec_from_file_location("native_build", BROKER / "native_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compiled() -> list[str]:
    """What pyproject.toml lists."""
    table = tomllib.loads((BROKER / "pyproject.toml").read_text())
    modules: list[str] = table["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]["modules"]
    return modules


@cache
def calls(hash_seed: str, pace: int = 1) -> dict[str, int]:
    """How often each function was called."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    path = os.pathsep.join([str(BROKER / "src"), str(BROKER), environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", WATCH, DIVISOR, str(pace), *compiled()],
        env=environ | {"PYTHONPATH": path, "PYTHONHASHSEED": hash_seed},
        capture_output=True, text=True, timeout=TIME_S_MAX, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, int] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("module", compiled())
def test_it_runs_through_each_module_that_is_compiled(module: str) -> None:
    ran = [name for name in calls("0") if name.startswith(f"{module}:")]
    assert bool(ran) != (module in WITHOUT)


def test_nothing_interpreted_derives_from_what_is_compiled() -> None:
    """No object of it could be made: `RatedPeer` was one, and nobody could connect where frames are bounded. Protocols
    are but names of what is wanted."""
    names = {f"mqbroker.{name.replace('/', '.')}" for name in compiled()}
    found: list[str] = []
    for info in pkgutil.walk_packages(mqbroker.__path__, "mqbroker."):
        if info.name in names or info.name.endswith("__main__"):
            continue
        code = importlib.import_module(info.name)
        classes = [each for each in vars(code).values() if isinstance(each, type) and each.__module__ == code.__name__]
        bases = [(each, base) for each in classes for base in each.__mro__ if base.__module__ in names]
        found += [
            f"{each.__name__} of {base.__name__}" for each, base in bases if not base.__dict__.get("_is_protocol")
        ]
    assert found == []


@pytest.mark.parametrize("module", compiled())
def test_classes_of_fields_are_there_when_a_compiled_module_is_imported(module: str) -> None:
    """mypyc looks up the class of a dataclass's field where Python keeps its name as text: one that is imported for
    types alone would end the import."""
    code = importlib.import_module(f"mqbroker.{module.replace('/', '.')}")
    classes = [each for each in vars(code).values() if isinstance(each, type) and each.__module__ == code.__name__]
    fields = [
        (each.__name__, name, str(annotation))
        for each in classes
        if dataclasses.is_dataclass(each)
        for name, annotation in each.__annotations__.items()
    ]
    # Of a union nothing is looked up, of `list[Queue]` the list.
    heads = [(owner, name, said.partition("[")[0]) for owner, name, said in fields if " | " not in said]
    assert [each for each in heads if not hasattr(code, each[2]) and not hasattr(builtins, each[2])] == []


@pytest.mark.slow
def test_it_always_runs_the_same_way() -> None:
    assert calls("0") == calls("1", SLOWER)
    assert sum(calls("0").values()) > 100_000


@pytest.mark.slow
def test_a_training_that_fails_says_why(tmp_path: Path, hook: ModuleType) -> None:
    (tmp_path / "built").mkdir()
    with pytest.raises(RuntimeError, match=r"(?s)training of the native build failed.*No module named 'mqbroker\.new'"):
        hook.train(tmp_path, ["mqbroker.new"])


def test_gcc_is_told_by_what_it_says_of_itself(tmp_path: Path, hook: ModuleType) -> None:
    other = tmp_path / "gcc"
    other.write_text("#!/bin/sh\necho '#define __GNUC__ 4'\necho '#define __clang__ 1'\n")
    other.chmod(0o755)
    assert hook.is_gcc(["gcc"])
    assert not hook.is_gcc([str(other)])
