import base64
import hashlib
import json
import os
from pathlib import Path

import pytest

from builder.built import BuildRefused, Built

HASH = "sha256:" + "0a" * 32
WHEEL = "docopt-0.6.2-py2.py3-none-any.whl"


def line(**changes: object) -> bytes:
    answer = {"pins": [["six", "1.17.0", [HASH]]], "wheels": [[WHEEL, base64.b64encode(b"data").decode()]]}
    return json.dumps(answer | changes).encode() + b"\n"


def test_pins_and_wheels_become_a_lock_and_files(tmp_path: Path) -> None:
    built = Built.parse(line())
    digest = hashlib.sha256(b"data").hexdigest()
    assert built.lock == f"docopt==0.6.2 --hash=sha256:{digest}\nsix==1.17.0 --hash={HASH}\n"
    built.write(str(tmp_path))
    assert (tmp_path / WHEEL).read_bytes() == b"data"
    assert os.listdir(tmp_path) == [WHEEL]


def test_names_in_a_lock_are_canonical() -> None:
    assert Built.parse(line(pins=[], wheels=[["My.Own_Name-1-py3-none-any.whl", ""]])).lock.startswith(
        "my-own-name==1 "
    )


def test_a_failure_is_told_with_its_cause() -> None:
    with pytest.raises(BuildRefused) as caught:
        Built.parse(json.dumps({"failed": "installer", "text": "error: no"}).encode())
    assert (caught.value.cause, caught.value.text) == ("installer", "error: no")


@pytest.mark.parametrize(
    "answer",
    [
        b"\n",
        b"[" * 100_000,
        b"{}",
        json.dumps({"failed": "whim", "text": "x"}).encode(),
        line(pins="six"),
        line(pins=[["six", "1.17.0", []]]),
        line(pins=[["six", "1.17.0", ["md5:00"]]]),
        line(pins=[["six", "1.17.0", [HASH + "\n--index-url x"]]]),
        line(pins=[["six\n-r x", "1.17.0", [HASH]]]),
        line(pins=[["../six", "1", [HASH]]]),
        line(pins=[["six @ file:///etc/passwd", "1", [HASH]]]),
        line(pins=[["six", "1 --index-url=http://x", [HASH]]]),
        line(pins=[["six", "1.17.0", [HASH]]] * 1001),
        line(wheels=[["../x-1-py3-none-any.whl", ""]]),
        line(wheels=[["x/x-1-py3-none-any.whl", ""]]),
        line(wheels=[["x-1-py3-none-any.whl\n", ""]]),
        line(wheels=[["x-1.tar.gz", ""]]),
        line(wheels=[["x-1-py3-none-any.whl", "?"]]),
        line(wheels=[["x-1-py3-none-any.whl", ""]] * 2),
        line(wheels=[["x-1-py3-none-any.whl"]]),
    ],
)
def test_anything_else_is_no_answer(answer: bytes) -> None:
    with pytest.raises(BuildRefused) as caught:
        Built.parse(answer)
    assert caught.value.cause == "fault"
