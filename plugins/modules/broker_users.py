#!/usr/bin/python
# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Users of broker instances."""

from __future__ import annotations

DOCUMENTATION = r"""
module: broker_users
short_description: Set users of broker instances
description:
  - Adds users, changes passwords and roles, and removes others where that is wanted. The broker's own program turns a
    password into a verifier; the password goes there by standard input and is kept nowhere.
  - A file of users that cannot be read is set aside as C(users.json.damaged), and a new one is begun.
  - A running broker takes the users on its next reload, and ends the connections of those that are gone.
author:
  - mqops maintainers (@mqops)
options:
  instances:
    description:
      - Names of the instances.
    type: list
    elements: str
    required: true
  users:
    description:
      - The users of each of them.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description:
          - Name of the user.
        type: str
        required: true
      password:
        description:
          - Password of the user.
        type: str
        required: true
      roles:
        description:
          - Roles of the user.
        type: list
        elements: str
        default: [client]
  exclusive:
    description:
      - Whether other users that an instance has are removed.
    type: bool
    default: false
  executable:
    description:
      - The program C(mqbroker).
    type: path
    default: /opt/mq/current/bin/mqbroker
attributes:
  check_mode:
    description: Compares and writes nothing.
    support: full
  diff_mode:
    description: Passwords are never shown; the names of changed users are returned.
    support: none
"""

EXAMPLES = r"""
- name: Let the application in
  mqops.cluster.broker_users:
    instances: [default]
    users:
      - name: app
        password: "{{ vaulted_password }}"
"""

RETURN = r"""
users_changed:
  description: Names of the users that were added, changed or removed.
  type: list
  elements: str
  returned: success
  sample: [app]
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.mqops.cluster.plugins.module_utils.command import EXECUTABLE, CommandFault, chosen
from ansible_collections.mqops.cluster.plugins.module_utils.loaded import Places
from ansible_collections.mqops.cluster.plugins.module_utils.users import remove_others, set_user

USER = {
    "name": {"type": "str", "required": True},
    "password": {"type": "str", "required": True, "no_log": True},
    "roles": {"type": "list", "elements": "str", "default": ["client"]},
}


def bring(params, is_check, executable):
    """The users of all instances; names of those that differed. Raises CommandFault."""
    changed = set()
    for file in [Places().users(one) for one in params["instances"]]:
        found = [set_user(file, user, is_check, executable) for user in params["users"]]
        changed.update(one.name for one in found if one.is_changed)
        # In a check the file that cannot be read still stands there, and has nobody who could be removed.
        if params["exclusive"] and not (is_check and any(one.is_first for one in found)):
            changed.update(remove_others(file, [one.name for one in found], is_check, executable))
    return sorted(changed)


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "instances": {"type": "list", "elements": "str", "required": True},
            "users": {"type": "list", "elements": "dict", "required": True, "options": USER},
            "exclusive": {"type": "bool", "default": False},
            "executable": {"type": "path", "default": EXECUTABLE},
        },
        supports_check_mode=True,
    )
    executable = chosen(module.params["executable"], module.check_mode)
    try:
        changed = bring(module.params, module.check_mode, executable)
    except CommandFault as fault:
        module.fail_json(msg=str(fault))
    module.exit_json(changed=bool(changed), users_changed=changed)


if __name__ == "__main__":
    main()
