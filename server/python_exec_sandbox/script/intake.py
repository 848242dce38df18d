"""From what a caller sent to what can be run: text in, text out, all problems at once."""

from collections.abc import Sequence
from dataclasses import dataclass

from python_exec_sandbox.errors import RequestError
from python_exec_sandbox.script import requirements, source
from python_exec_sandbox.script.metadata import read_metadata
from python_exec_sandbox.script.problems import Problems
from python_exec_sandbox.script.pythons import choose_python


@dataclass(frozen=True, slots=True)
class Prepared:
    """A script ready for a sandbox. ``notes`` are sentences about what was ignored."""

    source: source.Source
    requirements: tuple[str, ...]
    python: str
    notes: tuple[str, ...] = ()


def prepare(
    script: str | bytes,
    *,
    pythons: Sequence[str],
    default_python: str,
    dependencies: Sequence[str] = (),
    python_version: str | None = None,
) -> Prepared:
    """Check and normalise a script, merge its dependencies, choose its Python.

    Takes time proportional to the script's length, some seconds for the largest on an old Python.

    Raises:
        RequestError: with everything that is wrong.
    """
    problems = Problems()
    read = _read(script, problems)
    # What can't be run may have more faults, and they are wanted together.
    metadata = read_metadata(source.readable(script) if read is None else read.text, problems)
    wishes = [
        *(
            requirements.Wish(text, f"line {line} of the script")
            for text, line in zip(metadata.dependencies, metadata.lines, strict=True)
        ),
        *(requirements.Wish(text, "the dependencies argument") for text in dependencies),
    ]
    merged: tuple[str, ...] = ()
    with problems.collecting():
        merged = requirements.merge(wishes)
    python = default_python
    with problems.collecting():
        python = choose_python(
            pythons, default=default_python, wanted=python_version, requires=metadata.requires_python
        )
    problems.raise_any()
    if read is None:  # can't be: an unread script is a problem
        raise AssertionError
    return Prepared(source=read, requirements=merged, python=python, notes=metadata.notes)


def _read(script: str | bytes, problems: Problems) -> source.Source | None:
    try:
        return source.from_bytes(script) if isinstance(script, bytes) else source.from_text(script)
    except RequestError as error:
        problems.add_all(error)
        return None
