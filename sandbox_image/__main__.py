"""Starts the runner: ``python -I -S <this folder> --python 3.13``."""

from runner.supervisor import main

if __name__ == "__main__":
    main()
