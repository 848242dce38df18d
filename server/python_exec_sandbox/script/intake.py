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
    exclude_newer: str = ""


@dataclass(frozen=True, slots=True)
class Examined:
    """What is known of a script before it runs, whether it can run or not.

    ``source`` is ``None`` when the script can't be read, ``python`` when none fits. ``problems`` are
    sentences, one for each thing that is wrong. ``exclude_newer`` is the script's own cutoff for packages.
    """

    source: source.Source | None
    requirements: tuple[str, ...]
    python: str | None
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    exclude_newer: str = ""

    def ready(self) -> Prepared:
        """The same, for a sandbox.

        Raises:
            RequestError: there are problems; with all of them.
        """
        problems = Problems()
        for text in self.problems:
            problems.add(text)
        problems.raise_any()
        if self.source is None or self.python is None:  # can't be: that is a problem
            raise AssertionError
        return Prepared(self.source, self.requirements, self.python, self.notes, self.exclude_newer)


def prepare(
    script: str | bytes,
    *,
    pythons: Sequence[str],
    default_python: str,
    dependencies: Sequence[str] = (),
    python_version: str | None = None,
) -> Prepared:
    """Check and normalise a script, merge its dependencies, choose its Python; costs as :func:`examine`.

    Raises:
        RequestError: with everything that is wrong.
    """
    return examine(
        script,
        pythons=pythons,
        default_python=default_python,
        dependencies=dependencies,
        python_version=python_version,
    ).ready()


def examine(
    script: str | bytes,
    *,
    pythons: Sequence[str],
    default_python: str,
    dependencies: Sequence[str] = (),
    python_version: str | None = None,
    fetched: Sequence[str] = (),
) -> Examined:
    """All that can be told of a script without running it; never raises for what is wrong with it.

    Takes time proportional to the script's length, some seconds for the largest on an old Python.
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
    wishes = requirements.located(wishes, metadata.sources)
    merged: tuple[str, ...] = ()
    with problems.collecting():
        merged = requirements.merge(wishes)
    python: str | None = None
    with problems.collecting():
        python = choose_python(
            pythons,
            default=default_python,
            wanted=python_version,
            requires=metadata.requires_python,
            fetched=fetched,
        )
    return Examined(read, merged, python, metadata.notes, problems.texts, metadata.exclude_newer)


def _read(script: str | bytes, problems: Problems) -> source.Source | None:
    try:
        return source.from_bytes(script) if isinstance(script, bytes) else source.from_text(script)
    except RequestError as error:
        problems.add_all(error)
        return None
