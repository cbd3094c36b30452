"""The benchmark: our broker and its peers under the same load, round by round. `make bench` or `python -m bench`.

Layers, each importing only those before it: `stats`, `applications`, `rows`, `usage`, `disk` (facts) · `attacker`,
`load`, `jms`, `peers` (processes) · `measure` (one sample) · `rounds` (all of them) · `report`, `floors` (what they
say) · `run` (the command).
"""
