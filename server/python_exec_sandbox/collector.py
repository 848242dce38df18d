"""The garbage collector's part in answering at once."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def permanent() -> Iterator[None]:
    """Whatever is made inside, such as the modules of a large library, stays until the process ends.

    No collection happens inside, and no later one looks at what exists at the end: a full collection that
    walks through the MCP and docker SDKs holds the event loop for 75 ms. Garbage of that moment is kept too.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()
