import multiprocessing
import os
import signal
import threading
from pathlib import Path

import pytest

from builder.files import held, left_behind, read_record, write_record

BOUND = 20.0


def test_a_record_is_read_as_it_was_written_and_leaves_no_other_file(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write_record(str(path), {"a": 1})
    write_record(str(path), {"a": 2})
    assert read_record(str(path)) == {"a": 2}
    assert os.listdir(tmp_path) == ["record.json"]


def test_a_record_that_could_not_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write_record(str(path), {"a": 1})
    with pytest.raises(TypeError):
        write_record(str(path), {"a": object()})
    assert read_record(str(path)) == {"a": 1}
    assert os.listdir(tmp_path) == ["record.json"]


@pytest.mark.parametrize("content", [None, b"", b'{"a": 1', b"[1]", b"\xff\xfe"])
def test_what_is_no_record_counts_as_none(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "record.json"
    if content is not None:
        path.write_bytes(content)
    assert read_record(str(path)) is None


def test_a_lock_is_held_by_one_at_a_time_and_its_file_goes_with_the_last(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    inside, most, waited = 0, 0, threading.Event()
    guard = threading.Lock()

    def work() -> None:
        nonlocal inside, most
        for _ in range(50):
            with held(path, waited.set):
                with guard:
                    inside += 1
                    most = max(most, inside)
                with guard:
                    inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    with held(path):
        for thread in threads:
            thread.start()
        assert waited.wait(BOUND)
    for thread in threads:
        thread.join(BOUND)
        assert not thread.is_alive()
    assert most == 1
    assert os.listdir(tmp_path) == []


def _hold_until_killed(path: str, holding: "multiprocessing.synchronize.Event") -> None:
    with held(path):
        holding.set()
        signal.pause()


def test_a_lock_whose_holder_was_killed_is_seen_as_left_behind(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    context = multiprocessing.get_context("spawn")
    holding = context.Event()
    holder = context.Process(target=_hold_until_killed, args=(path, holding))
    holder.start()
    try:
        assert holding.wait(BOUND)
        with left_behind(path) as is_abandoned:
            assert not is_abandoned
        assert os.path.exists(path)
    finally:
        holder.kill()
        holder.join(BOUND)
    with left_behind(path) as is_abandoned:
        assert is_abandoned
    assert not os.path.exists(path)


def test_a_lock_that_is_not_there_is_not_left_behind(tmp_path: Path) -> None:
    with left_behind(str(tmp_path / "lock")) as is_abandoned:
        assert not is_abandoned
