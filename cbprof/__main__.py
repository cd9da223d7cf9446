"""``python -m cbprof``."""

from cbprof.cli.main import main

main()
