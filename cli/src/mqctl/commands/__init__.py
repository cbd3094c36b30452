"""One file per command: `Options` declares its command line, `run(world, options)` acts and returns the exit code."""
