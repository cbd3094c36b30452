# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Packs a folder on the control node, carries it to the host as one file, and has it unpacked there."""

from __future__ import annotations

import os
import tempfile

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.mqops.cluster.plugins.module_utils import tree

MODULE = "mqops.cluster.copy_tree"
ARCHIVE = "tree.tar"


class ActionModule(ActionBase):
    """See the module's documentation."""

    TRANSFERS_FILES = True
    _VALID_ARGS = frozenset({"src", "dest"})

    def run(self, tmp=None, task_vars=None):
        """Carry it there, unless this is a check."""
        result = super().run(tmp, task_vars)
        source, target = (str(self._task.args.get(name) or "") for name in ("src", "dest"))
        if not os.path.isdir(source) or not target:
            raise AnsibleActionFail(
                f"src must be a folder on the control node and dest a path, not {source!r}, {target!r}"
            )
        if self._task.check_mode:
            result.update(changed=True)
            return result
        folder = self._connection._shell.tmpdir or self._make_tmp_path()
        place = self._connection._shell.join_path(folder, ARCHIVE)
        with tempfile.NamedTemporaryFile(suffix=".tar") as archive:
            tree.pack(source, archive)
            archive.flush()
            self._transfer_file(archive.name, place)
        self._fixup_perms2((folder, place))
        arguments = {"archive": place, "dest": target}
        result.update(self._execute_module(module_name=MODULE, module_args=arguments, task_vars=task_vars))
        self._remove_tmp_path(self._connection._shell.tmpdir)
        return result
