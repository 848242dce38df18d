from python_exec_sandbox.model.result import OutputStream
from python_exec_sandbox.run.outputs import OutputStore
from python_exec_sandbox.stream.capture import Captured


def out(size: int) -> Captured:
    return Captured(head=b"h" * (size // 2), tail=b"t" * (size - size // 2), total_bytes=size)


def test_a_run_is_found_by_its_id_with_each_stream_apart() -> None:
    store = OutputStore()
    store.keep("a", out(10), out(4))
    kept = store.find("a")
    assert kept is not None
    assert kept.of(OutputStream.STDOUT) == out(10)
    assert kept.of(OutputStream.STDERR) == out(4)
    assert store.find("b") is None


def test_the_oldest_go_when_there_are_too_many_bytes() -> None:
    store = OutputStore(max_bytes=100)
    for name in "abcd":
        store.keep(name, out(30), out(10))
    assert [name for name in "abcd" if store.find(name)] == ["c", "d"]
    assert store.size == 80


def test_the_oldest_go_when_there_are_too_many_runs_that_printed_nothing() -> None:
    store = OutputStore(max_runs=3)
    for number in range(10):
        store.keep(str(number), Captured(), Captured())
    assert len(store) == 3
    assert store.find("9") is not None
    assert store.find("6") is None


def test_the_latest_run_is_kept_whatever_its_size_and_makes_room_when_the_next_comes() -> None:
    store = OutputStore(max_bytes=100)
    store.keep("small", out(10), Captured())
    store.keep("large", out(1000), Captured())
    assert store.find("large") is not None
    assert len(store) == 1
    store.keep("next", out(10), Captured())
    assert store.find("large") is None
    assert store.size == 10


def test_a_run_that_is_kept_again_counts_once() -> None:
    store = OutputStore(max_bytes=100)
    store.keep("a", out(40), Captured())
    store.keep("a", out(50), Captured())
    assert (len(store), store.size) == (1, 50)
