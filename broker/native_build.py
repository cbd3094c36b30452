"""Build hook of the wheel: with MQBROKER_NATIVE=1 the modules that pyproject.toml lists are compiled by mypyc.

Without it the wheel is pure, as is every editable install. Sources are compiled in a folder of their own, so nothing
lands in the checkout, and stay in the wheel beside what was compiled of them: Python prefers the latter, tracebacks
show the former. By gcc they are compiled twice, the second time guided by what a training (native_training.py) ran.
With MQBROKER_NATIVE_TRAINED=0 they are compiled once and for no speed, as tests do that want to know what compiled
modules do: that takes a fifth of the time.
docs/adr/0013-native-build.md says why, and what differs.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SWITCH = "MQBROKER_NATIVE"
TRAINED = "MQBROKER_NATIVE_TRAINED"
TOOLS = ["mypy>=2.4,<2.5", "setuptools>=65"]
GROUP = "mqbroker_native"  # the library that holds all of them: calls between modules do not go through Python
OPTIMIZATION, UNTRAINED_OPTIMIZATION = "2", "0"
TRAINING = Path(__file__).with_name("native_training.py")
TRAINING_TIME_S_MAX = 300
# Only what Python looks up is to be seen from outside: calls from one module to another are direct then.
FLAGS = ["-fvisibility=hidden", "-fno-semantic-interposition", "-fno-plt"]


def is_wanted() -> bool:
    """Whether the environment asks for native modules."""
    return _is_on(SWITCH, "0")


def is_trained() -> bool:
    """Whether it leaves them guided by a training."""
    return _is_on(TRAINED, "1")


def _is_on(switch: str, default: str) -> bool:
    said = os.environ.get(switch, "") or default
    if said not in ("0", "1"):
        raise ValueError(f"{switch} must be 0 or 1, not {said!r}")
    return said == "1"


class NativeBuild(BuildHookInterface[Any]):
    """Adds the compiled modules to a wheel, and the tag of the Python and the platform that they are for."""

    def dependencies(self) -> list[str]:
        """What builds, and what the types of our sources come from."""
        return [*TOOLS, *self.metadata.core.dependencies] if is_wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "standard" or not is_wanted():
            return
        self._scratch = tempfile.TemporaryDirectory(prefix="mqbroker-native-")
        place = Path(self._scratch.name)
        shutil.copytree(Path(self.root) / "src" / "mqbroker", place / "mqbroker")
        files = [f"mqbroker/{name}.py" for name in self.config["modules"]]
        built = compile_modules(place, files, trained=is_trained())
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"].update({str(file): str(file.relative_to(place / "built")) for file in built})

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if hasattr(self, "_scratch"):
            self._scratch.cleanup()


def compile_modules(place: Path, files: list[str], *, trained: bool = True) -> list[Path]:
    """Compile files below `place`; the libraries, below `place/built`. The same sources give the same bytes."""
    # Here, as a pure wheel needs none of them; setuptools first, as it brings the distutils that the others take.
    import setuptools  # isort: skip
    from distutils import ccompiler, sysconfig

    from mypyc.build import mypycify
    from setuptools.command.build_ext import build_ext

    def build(extensions: list[Any]) -> None:
        command = build_ext(setuptools.Distribution({"name": "mqbroker", "ext_modules": extensions}))
        command.build_lib, command.build_temp, command.force = "built", "objects", True
        command.build_extensions = lambda: _build_side_by_side(command)
        command.ensure_finalized()
        command.run()

    with contextlib.chdir(place):
        os.environ["MYPYPATH"] = str(place)
        level = OPTIMIZATION if trained else UNTRAINED_OPTIMIZATION
        library, *stubs = mypycify(
            [*files, "--config-file=", "--strict", "--explicit-package-bases"],
            opt_level=level, debug_level="0", multi_file=True, group_name=GROUP,
        )  # fmt: skip
        for extension in (library, *stubs):
            extension.extra_compile_args += FLAGS
        compiler: Any = ccompiler.new_compiler()
        sysconfig.customize_compiler(compiler)
        if not trained:
            build([library, *stubs])
        elif is_gcc(compiler.compiler):
            profile, given = place / "profile", library.extra_compile_args
            library.extra_compile_args = [*given, f"-fprofile-generate={profile}"]
            library.extra_link_args = ["-fprofile-generate"]
            build([library, *stubs])
            train(place, [name.removesuffix(".py").replace("/", ".") for name in files])
            # What the training never ran is compiled as without a profile, not for size. A profile that is missing or
            # does not fit is an error.
            library.extra_compile_args = [*given, f"-fprofile-use={profile}", "-fprofile-partial-training"]
            library.extra_link_args = []
            build([library])
        else:
            print("native build: the C compiler is not gcc, so it is built without a profile", file=sys.stderr)
            build([library, *stubs])
        return sorted(Path(place, "built").rglob("*.so"))


def is_gcc(command: list[str]) -> bool:
    """Whether this C compiler is gcc, of whatever name. Others that claim to be like it say more of themselves."""
    asked = [*command, "-dM", "-E", "-x", "c", os.devnull]
    said = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    return "#define __GNUC__ " in said and "__clang__" not in said and "__INTEL" not in said


def train(place: Path, modules: list[str]) -> None:
    """Run the training with what was built, beside the sources below `place`. Raises RuntimeError with its output."""
    shutil.copytree(place / "built", place, dirs_exist_ok=True)
    found = os.pathsep.join([str(place), str(TRAINING.parent), *filter(None, sys.path)])
    environ = {**os.environ, "PYTHONPATH": found, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, str(TRAINING), *modules], env=environ, timeout=TRAINING_TIME_S_MAX,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"the training of the native build failed:\n{done.stdout}")


def _build_side_by_side(command: Any) -> None:
    """Build what a build_ext is to build, with a C compiler for each processor."""
    compile_all = command.compiler.compile

    def compile_each(sources: list[str], **options: Any) -> list[str]:
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            return [made for (made,) in pool.map(lambda one: compile_all([one], **options), sources)]

    command.compiler.compile = compile_each
    type(command).build_extensions(command)
