import pytest
from hypothesis import given
from hypothesis import strategies as st

from python_exec_sandbox.run.uv_text import MAX_REASON_CHARACTERS, advice, names_no_room, shorten

NOT_FOUND = """\
Using Python 3.13.9 environment at: /env
warning: something about the cache
error: No solution found when resolving dependencies
  cause: Because zz-nope was not found in the package registry and you require zz-nope, we can conclude that your requirements are unsatisfiable.
"""
OLDER_LAYOUT = """\
  \u00d7 No solution found when resolving `--with` dependencies:
  ╰─▶ Because there is no version of six==99 and you require six==99, we
      can conclude that your requirements are unsatisfiable.
"""
NO_WHEEL = """\
error: No solution found when resolving dependencies
  cause: Because all versions of pycrypto have no usable wheels and you require pycrypto, ...

hint: Wheels are required for `pycrypto` because building from source is disabled for all packages
"""
UNREACHABLE = """\
error: Request failed after 3 retries in 10.4s
  cause: Failed to fetch: http://127.0.0.1:9/simple/humanize/
  cause: Connection refused (os error 111)
"""


def test_the_reason_is_one_line_without_noise() -> None:
    assert shorten(NOT_FOUND) == (
        "No solution found when resolving dependencies: Because zz-nope was not found in the package registry and "
        "you require zz-nope, we can conclude that your requirements are unsatisfiable."
    )
    assert "`--with` dependencies: Because there" in shorten(OLDER_LAYOUT)
    assert "we can conclude" in shorten(OLDER_LAYOUT)
    assert "\u00d7" not in shorten(OLDER_LAYOUT)


def test_progress_alone_is_no_reason() -> None:
    assert not shorten("Resolved 3 packages in 2ms\nDownloading numpy (15.1MiB)\n + six==1.17.0\n")


def test_the_advice_names_the_package() -> None:
    assert "zz-nope" in advice(NOT_FOUND)
    assert "six==99" in advice(OLDER_LAYOUT)
    assert "pycrypto" in advice(NO_WHEEL)
    assert "index" in advice(UNREACHABLE)
    assert advice("")


@given(st.text())
def test_any_text_becomes_a_short_encodable_line(text: str) -> None:
    line = shorten(text * 3)
    assert len(line) <= MAX_REASON_CHARACTERS
    assert "\n" not in line
    line.encode()


def test_a_long_proof_keeps_its_beginning_and_its_end() -> None:
    line = shorten("Because " + " and ".join(f"package{n}" for n in range(1000)) + " therefore the end.")
    assert line.startswith("Because package0")
    assert line.endswith("therefore the end.")


UNTRUSTED = """\
error: Request failed after 3 retries
  cause: Failed to fetch: https://index.example/simple/six/
  cause: invalid peer certificate: UnknownIssuer

hint: Consider enabling use of system TLS certificates with the `--system-certs`
      command-line flag
"""


def test_a_certificate_that_is_not_trusted_leads_to_the_servers_own_setting() -> None:
    assert advice(UNTRUSTED) == (
        "The index's certificate isn't trusted in the sandbox: start the server with --ca-bundle FILE."
    )
    assert shorten(UNTRUSTED).endswith("UnknownIssuer")


def test_hints_about_the_installers_own_flags_are_left_out_and_others_stay() -> None:
    text = "error: It failed\nhint: Set UV_X to go on\nhint: The package is yanked\nhint: See\n  --flag\n\nThe end"
    assert shorten(text) == "It failed hint: The package is yanked The end"


@pytest.mark.parametrize(
    ("requirement", "package"),
    [
        ("yaml", "pyyaml"),
        ("PIL>=9", "pillow"),
        ("sklearn[x]", "scikit-learn"),
        ("cv2 ; x", "opencv-python-headless"),
    ],
)
def test_a_module_named_as_a_dependency_leads_to_its_package(requirement: str, package: str) -> None:
    name = requirement.partition(">")[0].partition("[")[0].partition(" ")[0]
    failed = (
        f"error: No solution\n  cause: Because {name.lower()} was not found in the package registry and x"
    )
    assert f"its package is {package}" in advice(failed, ["six", requirement])
    assert "its package is" not in advice(
        "Because six was not found in the package registry", ["six", requirement]
    )


def test_no_room_is_known_by_the_systems_own_words() -> None:
    assert names_no_room("x: No space left on device (os error 28)")
    assert not names_no_room(UNREACHABLE)
