"""Commands that change hosts: rollouts, upgrades, hosts that come, rest and leave."""
