"""The commands of the command line: each module has ``add(subparsers)`` and ``run(arguments) -> exit code``."""
