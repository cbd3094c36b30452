"""Every option declared once, files of options, users and inventories checked before anything starts. Pure.

`options` declares, `slices` is what rooms receive, `load` reads TOML, `compare` says what a change needs. pydantic is
imported inside this room only.
"""
