"""Starts the runner: ``python -I -S <this folder or an archive of it> --python 3.13``.

Another first argument starts another part: ``build``, the builder (in a folder); ``build-source``,
the build sandbox; ``first``, the PID 1 of the script's own namespace; or ``prepare``, a trial run.
"""

import sys

if __name__ == "__main__":
    match sys.argv[1:2]:
        case ["build"]:
            from builder import program

            program.main(sys.argv[2:])
        case ["build-source"]:
            from builder import from_source

            from_source.main(sys.argv[2:])
        case ["first"]:
            from runner import first

            first.main(sys.argv[2:])
        case ["prepare"]:
            from runner import prepare

            prepare.main(sys.argv[2:])
        case _:
            from runner import supervisor

            supervisor.main()
