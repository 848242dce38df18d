"""``python -m python_exec_sandbox``."""

import sys

from python_exec_sandbox.cli import main

if __name__ == "__main__":
    sys.exit(main())
