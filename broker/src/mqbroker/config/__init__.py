"""Every option declared once, files of options, users and inventories checked before anything starts. Pure.

`declarations/options.py` declares, `slices` is what rooms receive, `file/load.py` reads TOML, `compare` says what a
change needs. pydantic is imported inside this room only.
"""
