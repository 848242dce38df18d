"""The server's half of the conversation: order, credit, and what hostile runners can't do."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from python_exec_sandbox.errors import ProtocolViolation
from python_exec_sandbox.model.job import Job
from python_exec_sandbox.model.limits import RunLimits
from python_exec_sandbox.model.result import OutputStream, Phase, StopReason
from python_exec_sandbox.stream import protocol
from python_exec_sandbox.stream.frames import FrameDecoder, Kind, encode, encode_credit
from python_exec_sandbox.stream.protocol import Exited, Hello, PhaseEntered, Ready
from python_exec_sandbox.stream.session import GRANT_BYTES, Output, RunnerSession, State

USAGE: dict[str, Any] = {
    "run_seconds": 0.1,
    "install_seconds": 0,
    "cpu_seconds": 0.05,
    "peak_memory_bytes": 1000,
    "memory_kills": 0,
    "process_refusals": None,
    "full_paths": [],
}
HELLO = {"type": "hello", "protocol": protocol.PROTOCOL_VERSION, "pythons": ["3.13"]}
READY = {"type": "ready", "warm": True}
RUNNING = {"type": "phase", "name": "running"}
EXIT = {
    "type": "exit",
    "reason": "exited",
    "code": 0,
    "signal": None,
    "notes": "",
    "warm": True,
    "usage": USAGE,
}


def control(message: dict[str, Any]) -> bytes:
    return encode(Kind.CONTROL, 0, json.dumps(message).encode())


ENDS = encode(Kind.END, protocol.STDOUT) + encode(Kind.END, protocol.STDERR)


def job(script: bytes = b"print(1)", stdin: bytes = b"") -> Job:
    return Job("run-1", script, "3.13", RunLimits(run_seconds=5), stdin=stdin)


def busy(script: bytes = b"print(1)", stdin: bytes = b"") -> RunnerSession:
    session = RunnerSession()
    session.receive(control(HELLO) + control(READY))
    session.start(job(script, stdin))
    return session


def test_a_whole_run_gives_its_events_in_order() -> None:
    session = busy()
    out = encode(Kind.DATA, protocol.STDOUT, b"1\n")
    events = session.receive(control(RUNNING) + out + ENDS + control(EXIT))
    assert events[:2] == [PhaseEntered(Phase.RUNNING), Output(OutputStream.STDOUT, b"1\n")]
    assert isinstance(events[2], Exited)
    assert events[2].report.exit_code == 0
    assert session.state is State.ENDED


def test_greeting_and_readiness_come_first() -> None:
    session = RunnerSession()
    assert session.receive(control(HELLO)) == [Hello(("3.13",))]
    assert session.receive(control(READY)) == [Ready(warm=True)]
    assert session.state is State.IDLE


def test_the_job_its_script_and_its_stdin_are_sent_in_full() -> None:
    session = busy(b"s" * 100_000, b"i" * 70_000)
    got: dict[int, bytes] = {}
    for frame in FrameDecoder().feed(session.take()):
        if frame.kind is Kind.DATA:
            got[frame.stream] = got.get(frame.stream, b"") + frame.payload
    assert got == {protocol.SCRIPT: b"s" * 100_000, protocol.STDIN: b"i" * 70_000}


@given(st.lists(st.integers(1, 200_000), max_size=40))
def test_never_more_is_sent_than_was_granted(grants: list[int]) -> None:
    total = 3 * protocol.WINDOW_BYTES
    session = busy(stdin=b"i" * total)
    sent, granted, decoder = 0, protocol.WINDOW_BYTES, FrameDecoder()
    for grant in [0, *grants]:
        if grant:
            session.receive(encode_credit(protocol.STDIN, grant))
            granted += grant
        for frame in decoder.feed(session.take()):
            if frame.kind is Kind.DATA and frame.stream == protocol.STDIN:
                sent += len(frame.payload)
        assert sent == min(total, granted)


def test_a_runner_that_sends_more_output_than_granted_is_a_violation() -> None:
    session = busy()
    piece = encode(Kind.DATA, protocol.STDOUT, b"x" * 65536)
    session.receive(control(RUNNING) + piece * (protocol.WINDOW_BYTES // 65536))
    with pytest.raises(ProtocolViolation, match="0 were granted"):
        session.receive(encode(Kind.DATA, protocol.STDOUT, b"x"))


def test_a_grant_opens_exactly_that_much_more_output() -> None:
    session = busy()
    piece = encode(Kind.DATA, protocol.STDOUT, b"x" * 65536)
    session.receive(control(RUNNING) + piece * (protocol.WINDOW_BYTES // 65536))
    session.grant(OutputStream.STDOUT, GRANT_BYTES)
    for _ in range(GRANT_BYTES // 65536):
        session.receive(piece)
    with pytest.raises(ProtocolViolation):
        session.receive(encode(Kind.DATA, protocol.STDOUT, b"x"))


def test_small_grants_are_kept_until_they_are_worth_a_frame() -> None:
    session = busy()
    session.receive(control(RUNNING) + encode(Kind.DATA, protocol.STDOUT, b"x" * 1000))
    session.take()
    session.grant(OutputStream.STDOUT, 1000)
    assert session.take() == b""
    session.grant(OutputStream.STDOUT, GRANT_BYTES - 1000)
    assert session.take() == encode_credit(protocol.STDOUT, GRANT_BYTES)


OUT_OF_ORDER = {
    "ready before hello": (RunnerSession, control(READY)),
    "hello twice": (RunnerSession, control(HELLO) * 2),
    "ready twice": (RunnerSession, control(HELLO) + control(READY) * 2),
    "exit without a job": (RunnerSession, control(HELLO) + control(READY) + control(EXIT)),
    "phase without a job": (RunnerSession, control(HELLO) + control(READY) + control(RUNNING)),
    "output before it runs": (busy, encode(Kind.DATA, protocol.STDOUT, b"x")),
    "end before it runs": (busy, ENDS),
    "phase twice": (busy, control(RUNNING) * 2),
    "phase backwards": (busy, control(RUNNING) + control({"type": "phase", "name": "installing"})),
    "phase of ours": (busy, control({"type": "phase", "name": "waiting"})),
    "exit before the outputs ended": (busy, control(RUNNING) + control(EXIT)),
    "output after its end": (busy, control(RUNNING) + ENDS + encode(Kind.DATA, protocol.STDERR, b"x")),
    "end twice": (busy, control(RUNNING) + ENDS + ENDS),
    "output on stdin": (busy, control(RUNNING) + encode(Kind.DATA, protocol.STDIN, b"x")),
    "output on an unknown stream": (busy, control(RUNNING) + encode(Kind.DATA, 77, b"x")),
    "credit for stdout": (busy, encode_credit(protocol.STDOUT, 1)),
    "credit without end": (busy, encode_credit(protocol.STDIN, 2**32 - 1)),
    "pong without ping": (busy, control({"type": "pong", "n": 1})),
    "another protocol": (RunnerSession, control(HELLO | {"protocol": 1})),
    "unknown type": (busy, control({"type": "sudo"})),
    "no type": (busy, control({})),
    "a list": (busy, encode(Kind.CONTROL, 0, b"[]")),
    "not JSON": (busy, encode(Kind.CONTROL, 0, b"{")),
    "deep JSON": (busy, encode(Kind.CONTROL, 0, b"[" * 60_000)),
    "a number of 60,000 digits": (
        busy,
        encode(Kind.CONTROL, 0, b'{"type":"pong","n":' + b"9" * 60_000 + b"}"),
    ),
    "code and signal": (busy, control(RUNNING) + ENDS + control(EXIT | {"signal": 9})),
    "neither code nor signal": (busy, control(RUNNING) + ENDS + control(EXIT | {"code": None})),
    "code 256": (busy, control(RUNNING) + ENDS + control(EXIT | {"code": 256})),
    "code true": (busy, control(RUNNING) + ENDS + control(EXIT | {"code": True})),
    "signal 0": (busy, control(RUNNING) + ENDS + control(EXIT | {"code": None, "signal": 0})),
    "a loss by its own word": (busy, control(RUNNING) + ENDS + control(EXIT | {"reason": "lost"})),
    "negative memory": (
        busy,
        control(RUNNING) + ENDS + control(EXIT | {"usage": USAGE | {"memory_kills": -1}}),
    ),
    "not a number": (
        busy,
        control(RUNNING) + ENDS + control(EXIT | {"usage": USAGE | {"run_seconds": float("nan")}}),
    ),
    "endless notes": (busy, control(RUNNING) + ENDS + control(EXIT | {"notes": "x" * 40_000})),
}


@pytest.mark.parametrize(("make", "data"), OUT_OF_ORDER.values(), ids=OUT_OF_ORDER)
def test_what_breaks_the_rules_is_a_violation(make: Any, data: bytes) -> None:
    session = make()
    with pytest.raises(ProtocolViolation):
        session.receive(data)


def test_an_install_failure_needs_no_output_streams() -> None:
    session = busy()
    message = EXIT | {"reason": "install_failed", "code": None, "notes": "no such package"}
    [_, exited] = session.receive(control({"type": "phase", "name": "installing"}) + control(message))
    assert isinstance(exited, Exited)
    assert exited.report.reason is StopReason.INSTALL_FAILED


def test_nothing_is_believed_after_the_end() -> None:
    session = busy()
    session.receive(control(RUNNING) + ENDS + control(EXIT) + control(EXIT | {"code": 1}))
    assert session.receive(b"\xff" * 100) == []


def test_lone_surrogates_in_a_text_are_replaced() -> None:
    session = busy()
    message = EXIT | {"reason": "install_failed", "code": None, "notes": "\ud800!"}
    [exited] = session.receive(control(message))
    assert isinstance(exited, Exited)
    assert exited.report.notes == "?!"


messages = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@given(st.sampled_from([HELLO, READY, RUNNING, EXIT]), st.text(max_size=12), messages)
def test_no_value_of_any_key_raises_anything_but_a_violation(
    base: dict[str, Any], key: str, value: Any
) -> None:
    for name in [key, *base]:
        try:
            protocol.parse(json.dumps(base | {name: value}).encode())
        except ProtocolViolation:
            continue


@given(st.binary(max_size=3000))
def test_hostile_bytes_raise_nothing_but_a_violation(data: bytes) -> None:
    session = busy()
    try:
        session.receive(data)
    except ProtocolViolation:
        return
    assert session.state in (State.BUSY, State.ENDED)


@given(st.lists(st.integers(0, 3000)))
def test_any_split_of_a_conversation_gives_the_same_events(places: list[int]) -> None:
    out = encode(Kind.DATA, protocol.STDOUT, b"hello\n") + encode(Kind.DATA, protocol.STDERR, b"warn\n")
    data = control(RUNNING) + out + ENDS + control(EXIT)
    bounds = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    session = busy()
    events = [event for a, b in pairwise(bounds) for event in session.receive(data[a:b])]
    assert events == busy().receive(data)
