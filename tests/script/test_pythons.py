import pytest

from python_exec_sandbox.errors import RequestError
from python_exec_sandbox.script.pythons import choose_python

AVAILABLE = ("3.13", "3.14", "3.15")


def choose(wanted: str | None = None, requires: str | None = None, default: str = "3.13") -> str:
    return choose_python(AVAILABLE, default=default, wanted=wanted, requires=requires)


@pytest.mark.parametrize(
    ("wanted", "requires", "chosen"),
    [
        (None, None, "3.13"),
        ("", None, "3.13"),
        ("3.14", None, "3.14"),
        ("python3.15", None, "3.15"),
        ("3", None, "3.13"),
        (">=3.14", None, "3.14"),
        ("<3.14", None, "3.13"),
        ("==3.15.*", None, "3.15"),
        (None, ">=3.9", "3.13"),
        (None, ">=3.14", "3.14"),
        (None, ">3.13", "3.13"),
        (None, ">=3.13.2", "3.13"),
        (None, "~=3.14.0", "3.14"),
        (None, "!=3.13.*", "3.14"),
        ("3.15", ">=3.14", "3.15"),
        (">=3.14", "<3.15", "3.14"),
    ],
)
def test_the_nearest_fitting_python_is_chosen(wanted: str | None, requires: str | None, chosen: str) -> None:
    assert choose(wanted, requires) == chosen


def test_an_older_one_is_chosen_when_nothing_newer_fits() -> None:
    assert choose(requires="<3.15", default="3.15") == "3.14"


@pytest.mark.parametrize(
    ("wanted", "requires", "chosen"),
    [
        ("3.12", None, "3.12"),
        (None, "<3.13", "3.12"),
        (None, "<3.11", "3.10"),
        ("<3.12", None, "3.11"),
        (None, ">=3.9", "3.13"),
        (None, "!=3.13.*", "3.14"),
        ("3", "<3.11", "3.10"),
    ],
)
def test_one_that_takes_a_download_is_chosen_only_where_no_other_fits(
    wanted: str | None, requires: str | None, chosen: str
) -> None:
    others = ("3.9", "3.10", "3.11", "3.12")
    assert (
        choose_python(AVAILABLE, default="3.13", wanted=wanted, requires=requires, fetched=others) == chosen
    )


@pytest.mark.parametrize(
    ("wanted", "requires"), [("3.8", None), (None, "<3.9"), (None, "==3.12.4"), (None, "==3.13")]
)
def test_what_nobody_has_is_refused_and_those_that_take_a_download_are_named_too(
    wanted: str | None, requires: str | None
) -> None:
    with pytest.raises(RequestError, match=r"Available are 3\.12, 3\.13, 3\.14, 3\.15"):
        choose_python(AVAILABLE, default="3.13", wanted=wanted, requires=requires, fetched=("3.12",))


@pytest.mark.parametrize(
    ("wanted", "requires", "words"),
    [
        ("3.12", None, ["3.12"]),
        ("3.13.2", None, ["3.13.2", "minor"]),
        ("2", None, ["2"]),
        ("snake", None, ["snake", "not a version"]),
        (">=4", None, [">=4"]),
        ("==3.13", None, ["==3.13.*"]),
        (None, "<3.13", ["requires-python", "<3.13"]),
        (None, "==3.13.2", ["requires-python"]),
        (None, "<=3.13", ["<3.14"]),
        ("3.13", ">=3.14", ["'3.13'", "'>=3.14'"]),
    ],
)
def test_what_can_not_be_had_is_refused_and_the_choice_is_named(
    wanted: str | None, requires: str | None, words: list[str]
) -> None:
    with pytest.raises(RequestError) as caught:
        choose(wanted, requires)
    for word in [*words, "3.13, 3.14, 3.15"]:
        assert word in str(caught.value)


def test_a_long_condition_is_cut_in_the_message() -> None:
    long = "<3," + ",".join(f"!=2.{n}" for n in range(60))
    for wanted, requires in ((long, None), (">=3," + "".join(f"!=4.{n}," for n in range(60)), long)):
        with pytest.raises(RequestError) as caught:
            choose(wanted, requires)
        assert len(str(caught.value)) < 400


@pytest.mark.parametrize(("wanted", "requires"), [(None, "<3.13"), ("3", "<3.13")])
def test_the_choice_is_listed_once(wanted: str | None, requires: str) -> None:
    with pytest.raises(RequestError) as caught:
        choose(wanted, requires)
    assert str(caught.value).count("3.13, 3.14, 3.15") == 1
