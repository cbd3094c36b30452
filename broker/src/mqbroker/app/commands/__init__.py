"""One module for each sub-command: `add_parser(subparsers)` parses, `run(args)` acts and returns the exit code."""
