"""Laws that hold for every script and every list of dependencies."""

import io
import tomllib
from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from python_exec_sandbox.errors import RequestError
from python_exec_sandbox.script.intake import Prepared, prepare
from python_exec_sandbox.script.metadata import read_metadata
from python_exec_sandbox.script.problems import Problems
from python_exec_sandbox.script.requirements import Wish, merge

PYTHONS = ("3.13", "3.14")


def read(script: str | bytes, *dependencies: str, python_version: str | None = None) -> Prepared | str:
    """What is made of a script, or the text of the error."""
    try:
        return prepare(
            script,
            pythons=PYTHONS,
            default_python="3.13",
            dependencies=dependencies,
            python_version=python_version,
        )
    except RequestError as error:
        return str(error)


# -- Merging -----------------------------------------------------------------------------------------

NAMES = st.sampled_from(["six", "Six", "S_i.x", "rich[x]", "rich[y,x]", "rich"])
SPECIFIERS = st.sampled_from(["", ">=1", "<3", "==2", "!=2", "~=1.5", ">=2.0a1", "==1.*", "==2.0", " (>1)"])
MARKERS = st.sampled_from(["", "; python_version < '3.14'", ';python_version<"3.14"', "; os_name == 'nt'"])
ADDRESSES = st.sampled_from([" @ https://x.org/1.whl", " @ https://x.org/2.whl"])
TEXTS = st.tuples(NAMES, SPECIFIERS, MARKERS).map("".join) | st.tuples(
    NAMES, ADDRESSES, st.just(" "), MARKERS
).map("".join)

Meaning = frozenset[tuple[object, ...]]


def meaning(lines: tuple[str, ...]) -> Meaning:
    """What ``lines`` ask for, whatever their order and spelling."""
    asked = map(Requirement, lines)
    return frozenset(
        (canonicalize_name(one.name), frozenset(one.extras), one.specifier, one.url, str(one.marker))
        for one in asked
    )


def merged(texts: list[str]) -> Meaning | None:
    try:
        return meaning(merge(Wish(text, "here") for text in texts))
    except RequestError:
        return None


@given(st.lists(TEXTS, max_size=6).flatmap(lambda texts: st.tuples(st.just(texts), st.permutations(texts))))
def test_the_order_of_wishes_changes_neither_what_is_asked_nor_whether_it_can_be(
    orders: tuple[list[str], list[str]],
) -> None:
    texts, shuffled = orders
    assert merged(texts) == merged(shuffled)


@given(st.lists(TEXTS, max_size=6))
def test_wishes_twice_are_the_same_as_once_and_merging_again_changes_nothing(texts: list[str]) -> None:
    once = merged(texts)
    assert merged(texts + texts) == once
    if once is not None:
        lines = merge(Wish(text, "here") for text in texts)
        assert merge(Wish(line, "here") for line in lines) == lines


@given(st.lists(TEXTS, max_size=6), st.integers(0, 6))
def test_it_makes_no_difference_which_wishes_stand_in_the_block_and_which_in_the_argument(
    texts: list[str], cut: int
) -> None:
    listed = ", ".join(f"'''{text}'''" for text in texts[:cut])
    found = read(f"# /// script\n# dependencies = [{listed}]\n# ///\n", *texts[cut:])
    assert (meaning(found.requirements) if isinstance(found, Prepared) else None) == merged(texts)


# -- Blocks ------------------------------------------------------------------------------------------

WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=12)
KEYS = st.text(alphabet="abz-_09", min_size=1, max_size=8)


def basic(text: str) -> str:
    """``text`` as a TOML basic string."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


TOML_LINES = st.one_of(
    st.tuples(KEYS, WORDS).map(lambda pair: f"{pair[0]} = {basic(pair[1])}"),
    st.tuples(KEYS, st.lists(WORDS, max_size=3)).map(lambda p: f"{p[0]} = [{', '.join(map(basic, p[1]))}]"),
    WORDS.map(lambda word: f"# {word}"),
    KEYS.map(lambda key: f"[tool.{key}]"),
    st.just(""),
    st.sampled_from(["///", "/// script", "a = '''", "'''", "requires-python = '>=3.13'", "tool = 1"]),
)


@given(
    before=st.lists(st.sampled_from(["", "x = 1", "# comment", "'''doc'''"]), max_size=3),
    dependencies=st.lists(WORDS, max_size=4),
    spread=st.booleans(),
    lines=st.lists(TOML_LINES, max_size=5),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_a_block_says_what_the_toml_reader_reads_in_it_each_dependency_on_its_line(
    before: list[str], dependencies: list[str], spread: bool, lines: list[str], end: str
) -> None:
    items = [basic(one) for one in dependencies]
    key = (
        ["dependencies = [", *(f"  {item}," for item in items), "]"]
        if spread
        else [f"dependencies = [{', '.join(items)}]"]
    )
    content = [*key, *lines]
    commented = [f"# {line}" if line else "#" for line in content]
    text = "\n".join(["", *before, "", "# /// script", *commented, "# ///", "y = 1"])
    problems = Problems()
    found = read_metadata(text, problems)
    try:
        expected = tomllib.loads("\n".join(content))
    except tomllib.TOMLDecodeError:
        assert told(problems)
        return
    assert list(found.dependencies) == expected["dependencies"] == dependencies
    assert found.requires_python == expected.get("requires-python")
    rows = text.split("\n")
    assert all(a <= b for a, b in pairwise(found.lines))
    if spread and not any("\\" in item for item in items):
        assert [rows[line - 1] for line in found.lines] == [f"#   {item}," for item in items]
    assert read(text.replace("\n", end)) == read(text)


def told(problems: Problems) -> str:
    try:
        problems.raise_any()
    except RequestError as error:
        return str(error)
    return ""


# -- Whatever is sent --------------------------------------------------------------------------------

PIECES = st.sampled_from(
    [
        *(
            "# /// script",
            "# ///",
            "#",
            "# dependencies = ['six']",
            "#/// script",
            "# requires-python = '>3'",
        ),
        *(
            "\n",
            "\r",
            "\r\n",
            "\ufeff",
            "\0",
            "\ud800",
            "'''",
            '"""',
            "f'''{",
            "\\",
            "(",
            "    ",
            "\x0c",
            "\u00a0",
        ),
        *(
            "# coding: latin-1",
            "# coding: utf-8",
            "# -*- coding: punycode -*-",
            "# coding: x",
            "é",
            "\u2028",
            "x = 1",
        ),
    ]
)
SCRIPTS = st.lists(PIECES | st.text(max_size=5), max_size=12).map("".join)
BYTES = st.lists(
    PIECES.map(lambda text: text.encode(errors="surrogatepass")) | st.binary(max_size=5), max_size=12
)


@given(SCRIPTS, st.lists(SCRIPTS, max_size=2), st.none() | SCRIPTS)
def test_any_text_is_a_script_or_an_error_of_ours_that_can_be_sent(
    script: str, dependencies: list[str], version: str | None
) -> None:
    found = read(script, *dependencies, python_version=version)
    if isinstance(found, str):
        assert found.encode()
    else:
        assert found.python in PYTHONS


@given(BYTES.map(b"".join) | st.binary(max_size=60))
@example(b"\xef\xbb\xbf\xef\xbb\xbf")
@example(b"\xff\xfe#\0")
def test_any_bytes_are_a_script_or_an_error_of_ours_that_can_be_sent(script: bytes) -> None:
    found = read(script)
    if isinstance(found, str):
        assert found.encode()
    else:
        assert found.source.data.decode(found.source.encoding) == found.source.text


@given(SCRIPTS, st.lists(st.sampled_from(["six", "humanize>=4"]), max_size=2))
def test_the_text_that_runs_is_the_text_that_was_sent_line_by_line(
    script: str, dependencies: list[str]
) -> None:
    found = read(script, *dependencies)
    if isinstance(found, Prepared):
        sent = io.StringIO(script.removeprefix("\ufeff"), newline=None).read()
        assert found.source.text == sent
        assert found.source.data.decode(found.source.encoding) == sent


LEADING = st.lists(st.sampled_from(["", "x = 1", "# comment", "'a'", "\t", "\x0c", "'''\n'''"]), max_size=30)


@given(LEADING, st.sampled_from(["\n", "\r\n", "\r"]))
def test_a_fault_is_told_with_the_line_that_the_sender_sees(before: list[str], end: str) -> None:
    head = "\n".join([*before, ""])
    line = head.count("\n")
    script = f"{head}# /// script\n# dependencies = ['--pre']\n# ///\ny = '\0'\n".replace("\n", end)
    found = read(script)
    assert isinstance(found, str)
    assert f"Line {line + 4} of the script has a NUL byte" in found
    assert f"'--pre' (line {line + 2} of the script)" in found
