# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Runs programs for modules that ask questions: a failure is an answer."""

from __future__ import annotations

NOT_FOUND = 127


def quiet_runner(module):
    """argv -> (exit code, standard output). A program that is missing counts as exit code 127."""

    def run(argv):
        try:
            code, out, _err = module.run_command(list(argv), handle_exceptions=False)
        except OSError:
            return NOT_FOUND, ""
        return code, out

    return run
