"""Stores of a test's own, and looks into them that no script could take."""

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from docker.errors import NotFound

from integration.support.engine import Engine, sandbox_image


@contextmanager
def own_store(engine: Engine, options: Mapping[str, str] | None = None) -> Iterator[str]:
    """The name of a volume, removed afterwards with all that has it; made at its first use, or at once with
    ``options`` of the engine's own volume driver."""
    name = f"python-exec-sandbox-test-{secrets.token_hex(4)}"
    if options is not None:
        engine.client.volumes.create(name, driver_opts=dict(options))
    try:
        yield name
    finally:
        with suppress(NotFound):
            volume = engine.client.volumes.get(name)
            for container in engine.client.containers.list(all=True, filters={"volume": name}):
                with suppress(NotFound):
                    container.remove(force=True)
            volume.remove(force=True)


def in_store(engine: Engine, store: str, script: str, *, mode: str = "ro") -> str:
    """What a shell that may see everything prints of the store; it can change something if ``mode`` is "rw"."""
    output = engine.client.containers.run(
        sandbox_image(engine),
        ["-c", script],
        entrypoint="/bin/sh",
        user="0:0",
        remove=True,
        network_mode="none",
        volumes={store: {"bind": "/store", "mode": mode}},
    )
    return str(output.decode())


def content_of(engine: Engine, store: str) -> str:
    """Names, modes, owners and contents of everything in the store but uv's and our own bookkeeping."""
    listing = "find /store/envs /store/cache/archive-v* /store/facts -printf '%p %M %U %y %s %T@\\n' | sort"
    sums = "find /store/envs /store/cache/archive-v* /store/facts -type f -exec sha256sum {} + | sort"
    return in_store(engine, store, f"{listing}; {sums}")
