"""Starts the runner, ``python -I -S <this folder> --python 3.13``, or the builder, ``python -I -S <this folder> build``."""

import sys

if __name__ == "__main__":
    if sys.argv[1:] == ["build"]:
        from builder.program import main
    else:
        from runner.supervisor import main
    main()
