#!/usr/bin/python
# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
from __future__ import annotations

DOCUMENTATION = r"""
module: clock_offset
short_description: Measures how far a host's clock is from that of the control node
version_added: 0.1.0
description:
  - Asks the host for its time a few times and takes the answer that came back fastest.
  - What the connection takes is in RV(uncertainty_ms), the offset is off by at most as much.
author: mqops maintainers (@mqops)
options:
  rounds:
    description: How often the host is asked.
    type: int
    default: 3
attributes:
  check_mode:
    description: Changes nothing.
    support: full
  action:
    description: Runs on the control node.
    support: full
"""

EXAMPLES = r"""
- name: Compare clocks
  mqops.cluster.clock_offset:
  register: clock
"""

RETURN = r"""
offset_ms:
  description: Milliseconds that the host is ahead, negative where it is behind.
  returned: success
  type: float
uncertainty_ms:
  description: Milliseconds that RV(offset_ms) may be wrong by.
  returned: success
  type: float
"""
