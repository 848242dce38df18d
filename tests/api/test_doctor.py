import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread
import pytest

from python_exec_sandbox.api.doctor import examine, table
from python_exec_sandbox.api.row import Row, Section, State
from python_exec_sandbox.api.runtime import Backend
from python_exec_sandbox.errors import EngineUnreachable
from python_exec_sandbox.settings import Settings
from tests.api.test_environment import WELL, PlayedBackend

pytestmark = pytest.mark.anyio

PARTS = (
    Section("First", (Row("good", "it is", State.GOOD), Row("plain", "so\nit is"))),
    Section("Second", (Row("bad", "no", State.BAD, "mend it\x1b[31m " + "with many words " * 12),)),
)


async def examined(played: PlayedBackend, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    @asynccontextmanager
    async def opening() -> AsyncIterator[Backend]:
        yield played.open()

    settings = await anyio.to_thread.run_sync(lambda: Settings(ca_bundle=None))
    with anyio.fail_after(10):
        code = await examine(settings, opening())
    return code, capsys.readouterr().out


async def test_when_scripts_can_run_the_code_is_0_and_each_fact_has_its_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, shown = await examined(PlayedBackend(), capsys)
    assert code == 0
    lines = shown.splitlines()
    assert "  ✓ memory                   512 MiB" in lines
    assert not [line for line in lines if line.startswith("  ! ") or len(line) > 110]
    assert "\x1b" not in shown


@pytest.mark.parametrize(
    "broken", [{"facts": EngineUnreachable("no engine: start Docker")}, {"measured": "unreachable"}]
)
async def test_when_none_can_the_code_is_1_and_the_fix_is_said(
    broken: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    code, shown = await examined(PlayedBackend(**broken), capsys)
    assert code == 1
    assert "  ✗ can run                  no\n" in shown
    assert "-> no engine: start Docker" in shown


async def test_what_does_not_hold_is_marked_but_scripts_can_run(capsys: pytest.CaptureFixture[str]) -> None:
    code, shown = await examined(PlayedBackend(measured=json.dumps(WELL | {"seccomp": 0})), capsys)
    assert code == 0
    assert "  ! system calls (seccomp)   not filtered (mode 0)\n" in shown
    assert "-> The engine runs without its default seccomp profile" in shown


def test_a_table_has_one_mark_a_row_and_long_texts_wrap_below_their_beginning() -> None:
    lines = table(PARTS).splitlines()
    assert lines[:4] == [
        "First",
        "  ✓ good                     it is",
        "    plain                    so it is",
        "",
    ]
    assert lines[5] == "  ✗ bad                      no"
    assert lines[6].startswith(" " * 29 + "-> mend it with many")
    assert all(line.startswith(" " * 32) and len(line) <= 110 for line in lines[7:])


def test_ticks_and_colours_are_only_where_they_can_be_seen() -> None:
    assert table(PARTS, ticks=False).isascii()
    assert "\x1b" not in table(PARTS)
    coloured = table(PARTS, colours=True)
    assert "\x1b[32m✓\x1b[0m good" in coloured
    assert "\x1b[31m " not in coloured, "what is shown brings no colours of its own"
