import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fake_engine import FakeEngine


@pytest.fixture
def engine() -> Iterator[FakeEngine]:
    """A fake engine that listens. Its folder is made here, as the path of a Unix socket must be short."""
    with (
        tempfile.TemporaryDirectory(prefix="pes-") as folder,
        FakeEngine(Path(folder) / "engine.sock").running() as running,
    ):
        yield running
