"""Each sandbox has a user id of its own, and the image knows all of them."""

import re
from pathlib import Path

import pytest

from python_exec_sandbox.drivers.docker.context import packaged_context
from python_exec_sandbox.drivers.docker.users import FIRST_UID, SCRIPT_GID, UID_COUNT
from python_exec_sandbox.drivers.user_ids import UserIds
from python_exec_sandbox.errors import CreateFailed

RANGE = range(FIRST_UID, FIRST_UID + UID_COUNT)


def test_no_id_is_handed_out_twice_and_all_lie_in_the_range() -> None:
    users = UserIds(FIRST_UID, UID_COUNT)
    assert sorted(users.take() for _ in RANGE) == list(RANGE)


def test_when_all_are_taken_the_error_says_what_to_do() -> None:
    users = UserIds(FIRST_UID, UID_COUNT)
    for _ in RANGE:
        users.take()
    with pytest.raises(CreateFailed, match=r"All 1024 user ids.*--max-sandboxes"):
        users.take()


def test_an_id_that_was_given_back_is_taken_again_last() -> None:
    users = UserIds(FIRST_UID, UID_COUNT)
    first = users.take()
    users.give_back(first)
    users.give_back(first)
    assert [users.take() for _ in RANGE][-1] == first


def test_two_servers_do_not_begin_at_the_same_id() -> None:
    assert len({UserIds(FIRST_UID, UID_COUNT).take() for _ in range(50)}) > 25


def test_an_id_is_given_back_when_what_it_was_for_fails() -> None:
    users = UserIds(FIRST_UID, UID_COUNT)
    with pytest.raises(ZeroDivisionError), users.lent():
        1 // (1 - len(users.taken))
    assert not users.taken
    with users.lent() as kept:
        pass
    assert users.taken == {kept}


def test_the_range_fits_a_rootless_engine_and_meets_no_person() -> None:
    assert min(RANGE) > 1000
    assert max(RANGE) < 61184  # the first of systemd's own ranges; a rootless engine has 65,536 ids


def test_the_image_names_every_id_of_the_range() -> None:
    dockerfile = (packaged_context() / "Dockerfile").read_text()
    (names,) = re.findall(r"RUN seq (\d+) (\d+) \| sed 's\|\.\*\|sandbox:x:&:(\d+):sandbox:", dockerfile)
    assert [int(number) for number in names] == [min(RANGE), max(RANGE), SCRIPT_GID]
    assert f"'sandbox:x:{SCRIPT_GID}:' >> /etc/group" in dockerfile


def test_the_runners_own_user_is_one_of_the_range() -> None:
    options = (packaged_context() / "runner" / "options.py").read_text()
    assert re.findall(r"^DEFAULT_([UG]ID) = (\d+)$", options, re.MULTILINE) == [
        ("UID", str(FIRST_UID)),
        ("GID", str(SCRIPT_GID)),
    ]


def test_the_corpus_of_scripts_looks_at_the_same_range() -> None:
    corpus = Path(__file__).parents[3] / "integration/same/corpus.py"
    assert f"{min(RANGE)} <= os.getuid() < {max(RANGE) + 1}" in corpus.read_text()
