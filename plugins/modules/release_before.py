#!/usr/bin/python
# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What ran on a host before a release was put there."""

from __future__ import annotations

DOCUMENTATION = r"""
module: release_before
short_description: Keep what a host goes back to when a release is taken back
version_added: 0.1.0
description:
  - Notes which release was the current one, its unit and its options, before another one becomes the current one; and
    says what was noted.
author:
  - mqops maintainers (@mqops)
options:
  release:
    description:
      - The release that becomes the current one, or that is gone back from.
      - Where it is left out with O(state=seen), the one that is the current one.
    type: str
    default: ""
  state:
    description:
      - V(noted) writes down what is there, where another release is the current one.
      - V(seen) changes nothing.
    type: str
    choices: [noted, seen]
    default: seen
attributes:
  check_mode:
    description: Compares and writes nothing.
    support: full
  diff_mode:
    description: Shows nothing.
    support: none
"""

EXAMPLES = r"""
- name: Keep what this host goes back to
  mqops.cluster.release_before:
    release: 0.2.0-5c1d9a07
    state: noted
"""

RETURN = r"""
current:
  description: The current release, empty where there is none.
  type: str
  returned: always
options:
  description: Text of C(broker.toml) of each instance as it is now, by its name.
  type: dict
  returned: always
found:
  description: What was before; null where nothing says so.
  type: dict
  returned: always
  contains:
    release:
      description: Name of the release.
      type: str
    unit:
      description: Text of its unit.
      type: str
    options:
      description: Text of C(broker.toml) of each instance, by its name.
      type: dict
"""

from dataclasses import asdict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.mqops.cluster.plugins.module_utils import release_before
from ansible_collections.mqops.cluster.plugins.module_utils.loaded import PLACES, link_name


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "release": {"type": "str", "default": ""},
            "state": {"type": "str", "choices": ["noted", "seen"], "default": "seen"},
        },
        required_if=[("state", "noted", ["release"])],
        supports_check_mode=True,
    )
    current = link_name(PLACES.current)
    release = module.params["release"] or current
    is_changed = module.params["state"] == "noted" and release_before.is_due(release)
    try:
        if is_changed and not module.check_mode:
            release_before.note(release)
    except OSError as fault:
        module.fail_json(msg=f"{fault.filename}: {fault.strerror}; nobody could go back from {release}")
    found = release_before.read(release)
    module.exit_json(
        changed=is_changed, current=current, options=release_before.options(), found=asdict(found) if found else None
    )


if __name__ == "__main__":
    main()
