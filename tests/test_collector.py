"""What the garbage collector is kept from."""

import subprocess
import sys

PROGRAM = """
import gc
from python_exec_sandbox.collector import permanent
before = gc.get_freeze_count()
collected = []
gc.callbacks.append(lambda phase, info: collected.append(phase))
with permanent():
    kept = [[] for _ in range(200_000)]
assert not collected, collected
assert gc.isenabled()
assert gc.get_freeze_count() - before > 200_000
gc.disable()
with permanent():
    pass
assert not gc.isenabled()
"""


def test_what_is_permanent_is_never_walked_through() -> None:
    # In a process of its own: freezing this one would hide the other tests' garbage for good.
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stderr
