"""The tool through the SDK's own client, in both eras of the protocol."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
import pytest
from mcp.client.client import Client
from mcp_types import CallToolResult, TextContent

from python_exec_sandbox.api import progress as progress_module
from python_exec_sandbox.api.app import build, instructions
from python_exec_sandbox.api.tool_call import META_KEY
from python_exec_sandbox.model.limits import MIB
from python_exec_sandbox.setting_values import Network
from python_exec_sandbox.settings import Settings
from tests.support.fake_serving import open_obedient

pytestmark = pytest.mark.anyio

ERAS = ["auto", "legacy"]


@asynccontextmanager
async def connected(
    era: str = "auto", own: Mapping[str, str] | None = None, **settings: Any
) -> AsyncIterator[Client]:
    with anyio.fail_after(20):
        # In a thread, as the server makes it before its event loop: the SDK's constructor imports and reads files.
        made = await anyio.to_thread.run_sync(
            lambda: build(Settings(ca_bundle=None, **settings), partial(open_obedient, own))
        )
        async with Client(made.server, mode=era) as client:
            yield client


def text_of(result: CallToolResult) -> str:
    assert all(isinstance(block, TextContent) for block in result.content)
    text = "\n".join(block.text for block in result.content if isinstance(block, TextContent))
    json.dumps(result.model_dump(mode="json", by_alias=True), ensure_ascii=False).encode()
    return text


async def call(client: Client, script: str, **arguments: Any) -> CallToolResult:
    return await client.call_tool("execute_python", {"script": script, **arguments})


@pytest.mark.parametrize("era", ERAS)
async def test_a_result_is_text_alone_with_its_data_under_our_key(era: str) -> None:
    async with connected(era) as client:
        result = await call(client, "say hello")
    assert text_of(result).splitlines()[:3] == ["exit 0 in 0 s", "--- stdout ---", "hello"]
    assert result.structured_content is None
    assert not result.is_error
    assert result.meta is not None
    assert result.meta[META_KEY]["verdict"] == "ok"
    assert result.meta[META_KEY]["driver"] == "fake"


@pytest.mark.parametrize("era", ERAS)
async def test_structured_output_when_asked_for_holds_the_text_too(era: str) -> None:
    async with connected(era, structured_output=True) as client:
        result = await call(client, "say hello")
    assert isinstance(result.structured_content, dict)
    assert "hello" in result.structured_content["text"]
    assert result.structured_content["verdict"] == "ok"


@pytest.mark.parametrize("era", ERAS)
async def test_a_failed_script_is_marked_as_an_error(era: str) -> None:
    async with connected(era) as client:
        result = await call(client, "fail")
    assert result.is_error
    assert text_of(result).startswith("exit 3")


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("script", "words", "error"),
    [
        ("busy", "32 calls wait already", "PoolBusy"),
        ("unreachable", "start Docker", "PoolUnavailable"),
    ],
)
async def test_a_run_that_could_not_be_carried_out_says_why_and_what_to_do(
    era: str, script: str, words: str, error: str
) -> None:
    async with connected(era) as client:
        result = await call(client, script)
    assert result.is_error
    assert text_of(result).startswith("not run: ")
    assert words in text_of(result)
    assert result.meta is not None
    assert result.meta[META_KEY] == {"error": error}


@pytest.mark.parametrize("era", ERAS)
async def test_wrong_arguments_are_told_without_the_librarys_own_words(era: str) -> None:
    async with connected(era) as client:
        result = await call(client, "x", dependencies={"a": 1})
    assert result.is_error
    assert text_of(result).startswith("not run: dependencies: an object is not accepted.")
    assert "pydantic" not in text_of(result)


async def test_unknown_arguments_are_reported_in_the_answer() -> None:
    async with connected() as client:
        result = await client.call_tool("execute_python", {"code": "say hello", "timeout_ms": 1})
    assert not result.is_error
    assert "hello" in text_of(result)
    assert "Ignored unknown argument 'timeout_ms'; did you mean timeout_seconds?" in text_of(result)


async def test_arguments_reach_the_run() -> None:
    async with connected() as client:
        result = await call(client, "say x", dependencies="six, attrs", python_version=3.14)
    assert result.meta is not None
    assert result.meta[META_KEY]["requirements"] == ["six", "attrs"]
    assert result.meta[META_KEY]["python"] == "3.14"


@pytest.mark.parametrize("era", ERAS)
async def test_bytes_that_are_no_text_and_lone_surrogates_leave_a_result_that_can_be_sent(era: str) -> None:
    async with connected(era) as client:
        for data in (bytes(range(256)), "\ud800x".encode(errors="surrogatepass")):
            result = await call(client, f"bytes {data.hex()}")
            text_of(result).encode()
            assert not result.is_error
        assert not (await call(client, "say still here")).is_error


async def test_a_fault_of_ours_is_told_as_one_without_its_details(caplog: pytest.LogCaptureFixture) -> None:
    async with connected() as client:
        result = await call(client, "crash")
        assert not (await call(client, "say still here")).is_error
    assert result.is_error
    assert "not of the script" in text_of(result)
    assert "a fault of ours" not in text_of(result)
    assert "a fault of ours" in caplog.text


@pytest.mark.parametrize("era", ERAS)
async def test_the_tools_are_described_for_clients_that_judge_by_hints_and_cut_long_texts(era: str) -> None:
    async with connected(era) as client:
        tools = (await client.list_tools()).tools
    assert [tool.name for tool in tools] == [
        *("execute_python", "read_output", "validate_script", "check_environment"),
    ]
    for tool in tools:
        assert tool.title
        assert tool.annotations is not None
        assert tool.annotations.title == tool.title
        assert tool.annotations.destructive_hint is False
        assert len(tool.description or "") <= 1000
        assert tool.output_schema is None
        assert tool.input_schema["type"] == "object"
        assert not {"anyOf", "oneOf", "allOf", "$ref"} & tool.input_schema.keys()
        for argument in tool.input_schema["properties"].values():
            assert isinstance(argument["type"], str)
            assert argument["description"]
    for tool in tools[1:]:
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint is True
        assert tool.annotations.idempotent_hint is True
        assert tool.annotations.open_world_hint is False
    tool = tools[0]
    assert tool.title
    assert tool.annotations is not None
    assert tool.annotations.title == tool.title
    assert tool.annotations.read_only_hint is False
    assert tool.annotations.destructive_hint is False
    assert tool.annotations.idempotent_hint is False
    assert tool.annotations.open_world_hint is True
    assert len(tool.description or "") <= 1000
    assert tool.output_schema is None
    assert tool.meta is not None
    assert tool.meta["anthropic/alwaysLoad"] is True
    assert tool.meta["anthropic/maxResultSizeChars"] > 8000
    assert not {"anyOf", "oneOf", "$ref"} & tool.input_schema.keys()


async def test_the_description_tells_what_a_model_must_know_before_it_writes() -> None:
    async with connected(memory=1024 * MIB, cpus=2) as client:
        text = (await client.list_tools()).tools[0].description or ""
    for words in (
        *(
            "1 GiB memory",
            "2 processors",
            "256 MiB disk (working folder 128 MiB, /tmp 64 MiB)",
        ),
        *("files are lost", "no pip and no git", "over 8000 characters is cut in the middle"),
    ):
        assert words in text, words


@pytest.mark.parametrize("network", list(Network))
async def test_the_longest_description_is_not_cut(network: Network) -> None:
    async with connected(
        network=network,
        memory=1000 * 1024 * MIB - 12345,
        disk=999 * 1024 * MIB - 123,
        cpus=255.123456,
        pids=32_768,
        max_timeout=86399.875,
        default_timeout=86398.875,
        show_chars=1_000_000,
    ) as client:
        assert len((await client.list_tools()).tools[0].description or "") <= 1000


async def test_of_the_places_where_no_engine_was_the_model_is_told_the_first_that_failed() -> None:
    async with connected() as client:
        text = text_of(await call(client, "searched"))
    assert (
        text == "not run: no sandbox can be made at present: No container engine could be used."
        " unix:///nowhere.sock: gone. Start Docker."
    )


async def test_without_a_network_the_world_is_closed() -> None:
    async with connected(network=Network.NONE) as client:
        tool = (await client.list_tools()).tools[0]
    assert tool.annotations is not None
    assert tool.annotations.open_world_hint is False
    assert "have no network" in (tool.description or "")
    assert "installed before the run when named in dependencies" in (tool.description or "")


@pytest.mark.parametrize("network", list(Network))
def test_instructions_fit_into_what_clients_keep(network: Network) -> None:
    assert 200 < len(instructions(Settings(ca_bundle=None, network=network))) <= 2000


@pytest.mark.parametrize("era", ERAS)
async def test_progress_comes_with_a_token_before_the_result_and_never_after(
    era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_module.Progress.__init__, "__defaults__", (0.02, 0.05))
    told: list[tuple[float, str | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, message))

    async with connected(era) as client:
        await client.call_tool("execute_python", {"script": "install 0.2"}, progress_callback=note)
        count = len(told)
        await call(client, "wait 0.2")
    assert len(told) == count
    values = [value for value, _ in told]
    assert values == sorted(set(values))
    words = " ".join(message or "" for _, message in told)
    assert "installing six" in words
    assert "running" in words


@pytest.mark.parametrize("era", ERAS)
async def test_other_calls_are_answered_while_scripts_run(era: str) -> None:
    async with connected(era) as client, anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(call, client, "wait 60")
        with anyio.fail_after(2):
            assert "quick" in text_of(await call(client, "say quick"))
        tasks.cancel_scope.cancel()
