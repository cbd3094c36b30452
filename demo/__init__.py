"""The main job, shown: bare hosts become brokers that carry durable messages and lose none when the power goes.

`make demo`, or `python -m demo`. KEEP=1 leaves everything up; DEMO_FORCE_DEV=1 tells the shorter story without hosts.

`narrator` prints and runs commands; `ledger` counts what arrived; a `stage` is where the story plays: `rack` (three
hosts) or `loopback` (`mqctl dev`); `story` is what happens to the messages and is the same on both.
"""
