from pathlib import Path

import pytest

from builder import warming
from builder.warming import Warming, is_unreachable

SIXTEEN = (
    "requests httpx numpy pandas matplotlib scipy scikit-learn pydantic rich polars beautifulsoup4 pillow"
    " sympy pyyaml fastapi sqlalchemy"
)


def test_the_list_of_the_image_has_what_scripts_ask_for_most(tmp_path: Path) -> None:
    assert Warming(str(tmp_path / "record")).left() == SIXTEEN.split()


def test_each_package_has_its_turn_once_however_often_one_asks(tmp_path: Path) -> None:
    names = tmp_path / "names"
    names.write_text("# why\n\na\nb # and why\n c\n")
    record = str(tmp_path / "record")
    assert Warming(record, str(names)).left() == ["a", "b", "c"]
    Warming(record, str(names)).note("a")
    Warming(record, str(names)).note("c")
    assert Warming(record, str(names)).left() == ["b"]
    names.write_text("a\nd\n")
    assert Warming(record, str(names)).left() == ["d"]


def test_without_a_list_nothing_is_to_be_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warming, "LIST", str(tmp_path / "none"))
    assert Warming(str(tmp_path / "record")).left() == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("error: Failed to fetch: `https://x/`\n  cause: error sending request for url", True),
        (
            "  cause: dns error\n  cause: failed to lookup address information: Name or service not known",
            True,
        ),
        ("  cause: tcp connect error\n  cause: Connection refused (os error 111)", True),
        ("  cause: operation timed out", True),
        ("  cause: HTTP status server error (503 Service Unavailable) for url (https://x/)", True),
        ("Because zz was not found in the package registry", False),
        ("HTTP status client error (404 Not Found) for url", False),
    ],
)
def test_an_index_that_could_not_be_reached_is_told_from_one_that_said_no(text: str, expected: bool) -> None:
    assert is_unreachable(text) is expected
