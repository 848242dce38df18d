import time

import pytest

from python_exec_sandbox.run.install_failures import sentence
from python_exec_sandbox.run.uv_text import MAX_REASON_CHARACTERS

UNSATISFIABLE = "we can conclude that your requirements are unsatisfiable."

SAID = {
    "no such package": (
        f"error: No solution found\n  cause: Because zz was not found in the package registry and you require zz, {UNSATISFIABLE}",
        "There is no package zz in the index; check the name (it may differ from the import's).",
    ),
    "no such package of another's": (
        "Because zz was not found in the package registry and all versions of abc depend on zz, we can conclude",
        "There is no package zz in the index, which abc depends on; check the name",
    ),
    "no such version": (
        f"Because there is no version of six==99 and you require six==99, {UNSATISFIABLE}",
        "No such version exists (six==99); ask for another",
    ),
    "no version in a range": (
        f"Because only six<=1.17.0 is available and you require six>3, {UNSATISFIABLE}",
        "No such version exists: you ask for six>3, and only six<=1.17.0 is available",
    ),
    "conflict with what was asked": (
        (
            "Because all versions of needy depend on alpha<2 and you require needy, we can conclude that you require"
            f" alpha<2.\n         And because you require alpha>=2, {UNSATISFIABLE}"
        ),
        "needy depends on alpha<2, but you ask for alpha>=2: these exclude each other",
    ),
    "conflict of two": (
        (
            "Because all versions of b depend on alpha>=2 and all versions of a depend on alpha<2, we can conclude that"
            f" all versions of a and all versions of b are incompatible.\n And because you require a and b, {UNSATISFIABLE}"
        ),
        "b depends on alpha>=2, but a depends on alpha<2: these exclude each other",
    ),
    "no wheel for this Python": (
        (
            "Because gamma==1.0 has no wheels with a matching Python implementation tag (e.g., `cp311`) and only gamma==1.0"
            " is available, we can conclude that all versions of gamma cannot be used."
        ),
        "gamma==1.0 has no build for this Python; try another version or another Python.",
    ),
    "no wheel for this platform": (
        "Because plat==1.0 has no wheels with a matching platform tag (e.g., `x`) and only plat==1.0 is available",
        "plat==1.0 has no build for this platform; try another version.",
    ),
    "index unreachable": (
        (
            "error: Failed to fetch: http://127.0.0.1:9/simple/alpha/\n  cause: error sending request for url"
            " (http://127.0.0.1:9/simple/alpha/)\n  cause: tcp connect error\n  cause: Connection refused (os error 111)"
        ),
        "The package index at 127.0.0.1:9 could not be reached (connection refused)",
    ),
    "index's name unknown": (
        "error: Failed to fetch: https://a:b@x.invalid/simple/six/\n cause: client error (Connect)\n cause: dns error",
        "The package index at x.invalid could not be reached (its name can't be resolved)",
    ),
    "index broken": (
        (
            "error: Failed to fetch: http://x.example/simple/omega/\n  cause: HTTP status server error (500 Internal Server"
            " Error) for url (http://x.example/simple/omega/)"
        ),
        "x.example answered 500 Internal Server Error when asked for omega",
    ),
    "no such file": (
        (
            "Failed to download `x @ https://x.example/x-1.0-py3-none-any.whl`\n cause: HTTP status client error (404 Not"
            " Found) for url (https://x.example/x-1.0-py3-none-any.whl)"
        ),
        "x.example answered 404 Not Found when asked for x-1.0-py3-none-any.whl; check the address.",
    ),
    "credentials": (
        (
            f"Because beta was not found in the package registry and you require beta, {UNSATISFIABLE}\n\nhint: An index URL"
            " (http://x.example/simple/) could not be queried due to a lack of valid authentication credentials (401"
            " Unauthorized)"
        ),
        "The index x.example wants other credentials (401), so that beta was not found;",
    ),
    "hash": ("error: Hash mismatch for `six==1`\n\nExpected:\n", "The file of six==1 is not the one"),
    "too new": (
        (
            "Because there are no versions of alpha and you require alpha\n\nhint: `alpha` was filtered by `exclude-newer` to"
            " only include packages uploaded before 2020-01-02T00:00:00Z. The latest version is v2.0."
        ),
        "No version of alpha that fits is older than 2020-01-02T00:00:00Z",
    ),
    "no package at all": (
        "Because bad==1.0 has an invalid package format and only bad==1.0 is available",
        "bad==1.0 in the index is no valid package",
    ),
}


@pytest.mark.parametrize("kind", SAID)
def test_each_kind_of_failure_is_one_sentence_with_the_packages_name(kind: str) -> None:
    said, words = SAID[kind]
    found = sentence(f"Resolved 3 packages\nwarning: something\n{said}\n")
    assert found.startswith(words)
    assert found.endswith(".")
    assert "Resolved" not in found
    assert "unsatisfiable" not in found
    assert len(found) < MAX_REASON_CHARACTERS


@pytest.mark.parametrize("said", ["", "error: something else", "thread main panicked", "no solution found"])
def test_what_is_of_no_known_kind_is_left_to_others(said: str) -> None:
    assert sentence(said) == ""


def test_a_module_asked_for_by_its_own_name_is_told_first() -> None:
    found = sentence("Because cv2 was not found in the package registry and you require cv2", ("cv2",))
    assert found.startswith("cv2 is the name of a module; its package is opencv-python")


@pytest.mark.parametrize(
    "hostile",
    [
        "a" * 40_000,
        "alpha depends on " * 2_000,
        "you require a<1 " * 2_000,
        "<" * 40_000,
        "a<1," * 10_000,
        "https://" * 5_000,
        "a" * 100 + "<1" + "." * 40_000,
        "Failed to fetch `" * 2_000,
        "`x` was filtered by `exclude-newer` " * 1_000,
    ],
)
def test_no_text_takes_long_to_read(hostile: str) -> None:
    began = time.perf_counter()
    sentence(hostile)
    assert time.perf_counter() - began < 1.0, "a hundred times what it takes"
