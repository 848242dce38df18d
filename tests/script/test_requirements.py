import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from python_exec_sandbox.errors import RequestError
from python_exec_sandbox.script.requirements import MAX_REQUIREMENTS_BYTES, Wish, merge


def wishes(*texts: str) -> list[Wish]:
    return [Wish(text, f"wish {n}") for n, text in enumerate(texts)]


def problem(*texts: str) -> str:
    with pytest.raises(RequestError) as caught:
        merge(wishes(*texts))
    return str(caught.value)


def lines(*texts: str) -> tuple[str, ...]:
    return merge(wishes(*texts))


def test_duplicates_collapse_whatever_their_spelling() -> None:
    assert lines("Foo_Bar>=2", "foo-bar >= 2", "foo.bar") == ("Foo_Bar>=2",)


def test_versions_and_extras_of_one_package_are_joined() -> None:
    (line,) = lines("rich[jupyter]>=13", "rich[x]<15")
    assert Requirement(line).extras == {"jupyter", "x"}
    assert Requirement(line).specifier == SpecifierSet(">=13,<15")


def test_markers_and_addresses_are_kept() -> None:
    assert lines("six; python_version < '3'", "six>=1", "a @ https://example.org/a-1.whl", "a") == (
        'six; python_version < "3"',
        "six>=1",
        "a @ https://example.org/a-1.whl",
    )


def test_a_version_beside_an_address_is_kept_for_the_installer_to_compare() -> None:
    assert lines("a[x] @ https://example.org/a-1.whl", "a>=2") == (
        "a[x] @ https://example.org/a-1.whl",
        "a[x]>=2",
    )


def test_blank_wishes_count_for_nothing() -> None:
    assert lines("", "  ", "six") == ("six",)


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (("six==1.15", "six==1.16"), ["six==1.15", "six==1.16", "wish 0", "wish 1"]),
        (("six>=2", "humanize", "six<2"), ["six>=2", "six<2"]),
        (("six>=2,<1",), ["six>=2,<1", "can't exist"]),
        (("six>=1,!=1.5", "six<=1.5", "six>=1.5"), ["exclude each other"]),
        (("a @ https://x.org/1.whl", "A @ https://x.org/2.whl"), ["1.whl", "2.whl"]),
    ],
)
def test_wishes_that_exclude_each_other_are_named(texts: tuple[str, ...], words: list[str]) -> None:
    told = problem(*texts)
    for word in words:
        assert word in told


def test_contradictions_under_different_markers_are_left_to_the_installer() -> None:
    assert len(lines("six==1; python_version<'3'", "six==2; python_version>='3'")) == 2


@pytest.mark.parametrize(
    "text",
    ["--index-url=https://x.org", "-e .", "-r other.txt", "six --hash=sha256:aa", "six==1 --pre", "--pre; x"],
)
def test_options_of_installers_are_refused(text: str) -> None:
    assert "option" in problem(text)


@pytest.mark.parametrize(
    "text", [".", "./pkg", "../pkg", "/etc", "~/pkg", "pkg/sub", "C:\\pkg", "pkg/x.whl", ".[extra]"]
)
def test_paths_are_refused(text: str) -> None:
    assert "path" in problem(text)


@pytest.mark.parametrize(
    "text",
    [
        "a @ file:///etc/a.whl",
        "a @ FILE:///x",
        "a @ git+file:///x",
        "a @ ./x",
        "a @ /x",
        "a @ ftp://x.org/a",
        "a @ https:///x",
        "a @ https://[x/a",
        "a @ hg+ssh://x.org/a",
    ],
)
def test_addresses_that_are_not_of_the_network_are_refused(text: str) -> None:
    assert "address" in problem(text)


@pytest.mark.parametrize(
    "text",
    [
        "a @ git+https://x.org/a",
        "git+https://x.org/a",
        "a[b] @ git+ssh://git@x.org/a.git@v1",
        "GIT+HTTP://x.org/a",
    ],
)
def test_what_needs_git_is_refused_with_what_to_write_instead(text: str) -> None:
    assert "git, which is not in the sandbox" in problem(text)
    assert "NAME @ https://...zip" in problem(text)


@pytest.mark.parametrize(
    "text",
    [
        "https://x.org/a.whl",
        "a @ https://x.org/${TOKEN}",
        "a\n--index-url=x",
        "a @ https://x.org/\n--index-url=https://y.org",
        "a @ https://x.org/\u202ea",
        "a\ud800",
        "a==",
        "not a name",
        "a; nonsense",
        "é",
    ],
)
def test_whatever_is_not_a_requirement_is_refused(text: str) -> None:
    problem(text).encode()


def test_all_problems_are_told_at_once() -> None:
    assert "3 problems" in problem("--pre", "six==1", "six==2", "./x")


def test_a_long_list_of_problems_is_cut_and_counted() -> None:
    told = problem(*(f"./{n}" for n in range(50)))
    assert "50 problems" in told
    assert "and 40 more" in told


def test_the_whole_has_a_size_limit() -> None:
    assert f"{MAX_REQUIREMENTS_BYTES:,}" in problem(*["x" * 100] * 400)


NAMES = st.sampled_from(["six", "Six", "rich[x]", "rich", "a"])
SPECIFIERS = st.sampled_from(["", ">=1", "<3", "==2", "!=2", "~=1.5", ">=2.0a1", "==1.*"])
MARKERS = st.sampled_from(["", "; python_version < '3.14'", "; sys_platform == 'linux'"])
TEXTS = st.lists(st.tuples(NAMES, SPECIFIERS, MARKERS).map("".join), max_size=6)


@given(TEXTS)
def test_merging_again_changes_nothing(texts: list[str]) -> None:
    try:
        once = lines(*texts)
    except RequestError:
        return
    assert lines(*once) == once
    assert len(once) == len(set(once))


@given(TEXTS, st.sampled_from(["1.0", "1.5", "1.7", "2", "2.5", "3", "4"]))
def test_a_version_fits_the_merged_lines_just_when_it_fits_each_wish(texts: list[str], version: str) -> None:
    wanted = [Requirement(text) for text in texts]
    try:
        got = [Requirement(line) for line in lines(*texts)]
    except RequestError:
        return
    for name in ("six", "rich", "a"):
        for marker in {str(one.marker) for one in wanted}:

            def fits(requirements: list[Requirement], name: str = name, marker: str = marker) -> bool:
                chosen = [r for r in requirements if r.name.lower() == name and str(r.marker) == marker]
                return all(r.specifier.contains(version, prereleases=True) for r in chosen)

            assert fits(got) == fits(wanted)


@given(st.text(max_size=40))
def test_any_text_is_a_requirement_or_a_request_error(text: str) -> None:
    try:
        for line in merge([Wish(text, "here")]):
            assert line.isprintable()
            assert not line.startswith(("-", ".", "/"))
    except RequestError as error:
        str(error).encode()
