#!/usr/bin/python
# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Folders and small files of a host, many at once."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_files
short_description: Make folders and small files, many at once
version_added: 0.1.0
description:
  - Brings folders and files to what is wanted of them, in one look at the host where M(ansible.builtin.file) and
    M(ansible.builtin.copy) need one for each of them.
  - New content is tried before any file is replaced, and each file is replaced as a whole.
author:
  - mqops maintainers (@mqops)
options:
  files:
    description:
      - The folders and files. Folders are made first, each in its order, and never what is above them.
    type: list
    elements: dict
    required: true
    suboptions:
      path:
        description:
          - Where it is.
        type: path
        required: true
      owner:
        description:
          - Name of its user.
        type: str
        default: root
      group:
        description:
          - Name of its group.
        type: str
        default: root
      mode:
        description:
          - Its mode, as octal digits.
        type: str
        required: true
      content:
        description:
          - What is in the file. A folder is made where neither this nor O(files[].secret_content) is given,
            unless O(files[].is_kept=true).
        type: str
      secret_content:
        description:
          - The same for what is never shown.
        type: str
      is_kept:
        description:
          - Whether it is a file that something else writes. Its content stays, and where there is none, none is made.
        type: bool
        default: false
      try_by:
        description:
          - A command that is given the new content as the file that its last argument names, and refuses it by its exit
            code. It is not asked in a check.
        type: list
        elements: str
        default: []
attributes:
  check_mode:
    description: Compares and writes nothing.
    support: full
  diff_mode:
    description: Shows what changes, but not where the content is a secret.
    support: full
"""

EXAMPLES = r"""
- name: Make a folder and what is in it
  mqops.cluster.host_files:
    files:
      - path: /etc/mq
        mode: "0755"
      - path: /etc/mq/motto
        mode: "0644"
        content: "Keep it.\n"
"""

RETURN = r"""
paths_changed:
  description: Paths that were made or changed.
  type: list
  elements: str
  returned: success
  sample: [/etc/mq/motto]
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.mqops.cluster.plugins.module_utils.files import (
    FileFault,
    Wanted,
    diff_of,
    differences,
    make,
)

ENTRY = {
    "path": {"type": "path", "required": True},
    "owner": {"type": "str", "default": "root"},
    "group": {"type": "str", "default": "root"},
    "mode": {"type": "str", "required": True},
    "content": {"type": "str"},
    "secret_content": {"type": "str", "no_log": True},
    "is_kept": {"type": "bool", "default": False},
    "try_by": {"type": "list", "elements": "str", "default": []},
}


def wanted_of(entry):
    """The path of one entry. Raises FileFault where its mode is none."""
    content = entry["content"] if entry["secret_content"] is None else entry["secret_content"]
    try:
        mode = int(entry["mode"], 8)
    except ValueError:
        raise FileFault(f"{entry['path']}: {entry['mode']} is no mode in octal digits") from None
    return Wanted(
        entry["path"],
        entry["owner"],
        entry["group"],
        mode,
        None if content is None else content.encode(),
        tuple(entry["try_by"]),
        entry["is_kept"],
    )


def bring(module):
    """Compare, and make what differs; paths and differences."""
    entries = [(wanted_of(one), one["secret_content"] is not None) for one in module.params["files"]]
    found = [(wanted, differences(wanted), is_secret) for wanted, is_secret in entries]
    due = [(wanted, differs, is_secret) for wanted, differs, is_secret in found if differs]
    shown = [diff_of(wanted, differs, is_secret) for wanted, differs, is_secret in due]
    if not module.check_mode:
        make([wanted for wanted, _differs, _is_secret in due])
    return [wanted.path for wanted, _differs, _is_secret in due], shown


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "files": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": ENTRY,
                "mutually_exclusive": [["content", "secret_content"]],
            },
        },
        supports_check_mode=True,
    )
    try:
        paths, shown = bring(module)
    except FileFault as fault:
        module.fail_json(msg=str(fault))
    module.exit_json(changed=bool(paths), paths_changed=paths, diff=shown)


if __name__ == "__main__":
    main()
