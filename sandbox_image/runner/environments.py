"""Environments of the store, as a sandbox uses them."""

import os

from .identity import Identity

MAX_FACTS_BYTES = 64 * 1024
"""uv's answer about one Python has two thousand bytes."""


def enter(environment: str, cache: str, identity: Identity) -> bool:
    """Let uv know what the builder learned of the environment's Python: asking again takes 40 ms and more.

    ``False`` when the environment isn't there (any more).
    """
    if not os.path.exists(os.path.join(environment, "bin", "python")):
        return False
    store, name = os.path.dirname(os.path.dirname(environment)), os.path.basename(environment)
    facts = os.path.join(store, "facts", name)
    for folder, _, files in os.walk(facts):
        target = os.path.normpath(os.path.join(cache, os.path.relpath(folder, facts)))
        for file in files:
            with open(os.path.join(folder, file), "rb") as source:
                data = source.read(MAX_FACTS_BYTES)
            with identity.assumed():
                _put(target, file, data)
    return True


def _put(folder: str, name: str, data: bytes) -> None:
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as file:
        file.write(data)
