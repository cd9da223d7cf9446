"""``python -m cbprof``."""

from cbprof.cli.main import main

if __name__ == "__main__":  # a process that is spawned to help imports this file too
    main()
