"""The tools beside ``execute_python``, through the SDK's own client in both eras of the protocol."""

import json
from typing import Any

import anyio
import pytest
from mcp.client.client import Client
from mcp_types import CallToolResult

from python_exec_sandbox.api import progress as progress_module
from python_exec_sandbox.api.argument_shapes import Shape
from python_exec_sandbox.api.check_environment import META_KEY as ENVIRONMENT_KEY
from python_exec_sandbox.api.check_environment import SHAPE as CHECK
from python_exec_sandbox.api.read_output import META_KEY as OUTPUT_KEY
from python_exec_sandbox.api.read_output import MOST_CHARACTERS
from python_exec_sandbox.api.read_output import SHAPE as READ
from python_exec_sandbox.api.tool_call import META_KEY
from python_exec_sandbox.api.validate_script import META_KEY as VALIDATION_KEY
from python_exec_sandbox.api.validate_script import SHAPE as VALIDATE
from python_exec_sandbox.api.validate_script import data_of as validation_data
from python_exec_sandbox.api.validate_script import text_of as validation_text
from python_exec_sandbox.model.environment import Package
from python_exec_sandbox.run.own_programs import CHECK_SYNTAX, MEASURE
from python_exec_sandbox.run.resolving import Versions
from python_exec_sandbox.run.validation import Validation
from tests.api.test_environment import WELL
from tests.api.test_tools import ERAS, call, connected, text_of
from tests.support.fake_serving import KEPT_BYTES

pytestmark = pytest.mark.anyio

FINE: dict[str, Any] = {"python": "3.13.1", "error": None, "warnings": [], "imports": []}


def own(*, measured: str | None = None, **checked: Any) -> dict[str, str]:
    return {CHECK_SYNTAX: json.dumps(FINE | checked), MEASURE: measured or json.dumps(WELL)}


def data_of(result: CallToolResult, key: str) -> dict[str, Any]:
    assert result.meta is not None
    assert result.structured_content is None
    data: dict[str, Any] = result.meta[key]
    return data


async def printed(client: Client, script: str) -> str:
    result = await call(client, script)
    return str(data_of(result, META_KEY)["run_id"])


async def read(client: Client, run_id: object, **arguments: Any) -> CallToolResult:
    return await client.call_tool("read_output", {"run_id": run_id, **arguments})


# -- read_output -------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_the_marker_of_an_answer_leads_to_the_rest_page_by_page(era: str) -> None:
    async with connected(era, show_chars=200) as client:
        answer = text_of(await call(client, "repeat 45 0123456789abcdef"))
        marker = answer.partition("[... ")[2]
        run_id = marker.partition('run_id="')[2].partition('"')[0]
        offset = int(marker.partition("offset=")[2].partition(")")[0])
        text = answer.partition("--- stdout ---\n")[2].partition("[...")[0]
        while True:
            result = await read(client, run_id, offset=offset)
            assert not result.is_error
            text += text_of(result).partition("--- stdout ---\n")[2]
            data = data_of(result, OUTPUT_KEY)
            if data["next_offset"] is None:
                break
            assert f"next offset={data['next_offset']}" in text_of(result).splitlines()[0]
            offset = data["next_offset"]
    assert text == "0123456789abcdef\n" * 45
    assert "this is the end" in text_of(result).splitlines()[0]


async def test_a_middle_that_was_not_kept_is_told_with_its_place() -> None:
    async with connected() as client:
        run_id = await printed(client, "repeat 500 12345")
        whole = text_of(await read(client, run_id))
        before = text_of(await read(client, run_id, limit=100))
    dropped = f"{3000 - KEPT_BYTES:,} bytes"
    assert f"{dropped} (333 lines) were not kept at offset 500." in whole
    assert f"[... {dropped} (333 lines) were not kept ...]" in whole
    assert "at offset 500" in before
    assert "[..." not in before


async def test_what_is_read_is_cleaned_as_results_are() -> None:
    async with connected() as client:
        run_id = await printed(client, f"bytes {(b'a' + bytes([0, 27]) + b'[31mred' + bytes([255])).hex()}")
        assert text_of(await read(client, run_id)).endswith("--- stdout ---\na\\x00red\ufffd")


async def test_a_stream_on_which_nothing_was_printed_says_so() -> None:
    async with connected() as client:
        run_id = await printed(client, "say x")
        result = await read(client, run_id, stream="stderr")
    assert not result.is_error
    assert text_of(result) == f"stderr of run {run_id}: nothing was printed there"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"run_id": "nope"}, "No output of a run 'nope' is kept."),
        ({"run_id": "\ud800"}, "No output of a run '\\ud800' is kept."),
        ({}, "run_id: missing or empty. Accepted: the run's id as text"),
        ({"run_id": 3}, "run_id: a number is not accepted."),
        ({"stream": "both"}, 'stream: is neither "stdout" nor "stderr".'),
        ({"stream": 2}, 'stream: is neither "stdout" nor "stderr".'),
        ({"offset": 5}, "offset 5 is outside of what is kept: stdout of run fake-run-1 has 5 characters, so"),
        ({"offset": -6}, "offset -6 is outside"),
        ({"offset": "soon"}, "offset: is not a whole number. Accepted: such as 8000."),
        ({"offset": True}, "offset: is not a whole number."),
        ({"offset": "--5"}, "offset: is not a whole number. Accepted: such as 8000."),
        ({"offset": 1e308}, "offset: is not a whole number. Accepted: such as 8000."),
        ({"limit": 0}, "limit must be at least 1, not 0."),
        ({"limit": 1.5}, "limit: is not a whole number."),
    ],
)
async def test_what_can_not_be_read_is_one_clear_error(arguments: dict[str, Any], words: str) -> None:
    async with connected() as client:
        run_id = await printed(client, "say 12345")
        asked = arguments if arguments == {} or "run_id" in arguments else {"run_id": run_id, **arguments}
        result = await client.call_tool("read_output", asked)
    assert result.is_error
    assert words in text_of(result)
    assert "pydantic" not in text_of(result)


async def test_arguments_are_understood_in_the_shapes_that_clients_send() -> None:
    async with connected() as client:
        run_id = await printed(client, "say 0123456789")
        sent = {
            "id": f" {run_id} ",
            "stream": "STDOUT",
            "start": "2",
            "limit": 3.0,
            "length": 9,
            "colour": None,
        }
        result = await client.call_tool("read_output", sent)
        defaults = await read(client, run_id, stream=None, offset="", limit=None)
        much = await read(client, run_id, limit=10**9)
    assert text_of(result).endswith("--- stdout ---\n234")
    assert "Note: Ignored unknown argument 'length'; did you mean limit?" in text_of(result)
    assert "Note: Ignored unknown argument 'colour'" in text_of(result)
    assert text_of(defaults).endswith("--- stdout ---\n0123456789")
    assert f"{MOST_CHARACTERS:,} were used" in text_of(much)


# -- validate_script ---------------------------------------------------------------------------------


async def validated(client: Client, script: object, **arguments: Any) -> CallToolResult:
    return await client.call_tool("validate_script", {"script": script, **arguments})


@pytest.mark.parametrize("era", ERAS)
async def test_a_valid_script_is_told_with_what_it_would_run_with(era: str) -> None:
    async with connected(era, own()) as client:
        result = await validated(client, "print(1)", dependencies="six, attrs", python_version=3.14)
    assert not result.is_error
    assert text_of(result).splitlines() == [
        "valid: Python 3.13.1 compiles the script",
        "[python 3.14; requirements: six, attrs; nothing was executed]",
    ]
    assert data_of(result, VALIDATION_KEY)["valid"] is True


async def test_problems_of_all_kinds_come_together_with_their_lines() -> None:
    error = {"kind": "SyntaxError", "message": "invalid syntax", "line": 4, "column": 7, "text": "  if x y"}
    script = '# /// script\n# dependencies = ["not valid!"]\n# ///\n  if x y\n'
    async with connected(own=own(error=error)) as client:
        result = await validated(client, script, python_version="2.7")
    assert result.is_error
    lines = text_of(result).splitlines()
    assert lines[0] == "not valid: 3 problems"
    assert "line 2 of the script" in lines[1]
    assert "Python 2.7 is not available" in lines[2]
    assert lines[3:6] == ["- Line 4, column 7: SyntaxError: invalid syntax", "      if x y", "          ^"]
    assert "python none fits" in lines[-1]


async def test_of_a_long_line_the_place_is_shown() -> None:
    line = "a" * 150 + "!" + "b" * 100
    error = {"kind": "SyntaxError", "message": "invalid syntax", "line": 1, "column": 151, "text": line}
    async with connected(own=own(error=error)) as client:
        shown, mark = text_of(await validated(client, line)).splitlines()[2:4]
    assert shown == "      " + "a" * 50 + "!" + "b" * 49
    assert shown[mark.index("^")] == "!"


async def test_warnings_and_missing_modules_are_hints_and_no_errors() -> None:
    warning = {"kind": "SyntaxWarning", "message": "invalid escape sequence", "line": 2}
    imports = [{"module": "yaml", "line": 1}, {"module": "imp", "line": 3}]
    async with connected(own=own(warnings=[warning], imports=imports)) as client:
        result = await validated(client, "import yaml, imp")
    assert not result.is_error
    text = text_of(result)
    assert "Warning: Line 2: SyntaxWarning: invalid escape sequence" in text
    assert 'yaml (line 1), imp (line 3). Name them: "pyyaml". No longer part of Python: imp.' in text


def _with_versions(versions: Versions) -> Validation:
    return Validation((), (), ("six",), "3.13", versions=versions)


def test_versions_are_listed_as_text_and_as_data() -> None:
    many = _with_versions(Versions(tuple(Package(f"p{number}", "1.0") for number in range(100))))
    assert "Versions that would be installed: p0 1.0, p1 1.0," in validation_text(many)
    assert " and 40 more." in validation_text(many)
    assert validation_data(many)["versions"] == {f"p{number}": "1.0" for number in range(100)}
    assert "there is nothing to install" in validation_text(_with_versions(Versions()))


def test_versions_that_are_not_known_have_their_reason() -> None:
    unknown = _with_versions(Versions(unknown="no engine."))
    assert "Versions not resolved: no engine." in validation_text(unknown)
    assert validation_data(unknown)["versions"] is None


@pytest.mark.parametrize(
    ("resolve", "is_told"), [(True, True), ("true", True), (False, False), (None, False)]
)
async def test_where_nothing_is_installed_by_the_server_versions_are_not_told(
    resolve: object, is_told: bool
) -> None:
    async with connected(own=own()) as client:
        result = await validated(client, "print(1)", dependencies=["six"], resolve=resolve)
    assert not result.is_error
    assert ("Versions not resolved: packages are not installed by this server" in text_of(result)) is is_told


async def test_a_wrong_wish_for_versions_is_named_with_the_accepted_form() -> None:
    async with connected(own=own()) as client:
        result = await validated(client, "print(1)", resolve="maybe")
    assert "resolve: text is not accepted. Accepted: true or false." in text_of(result)


@pytest.mark.parametrize("script", ["", "   ", None])
async def test_an_empty_script_is_refused_before_a_sandbox_is_asked_for(script: object) -> None:
    async with connected(own=own()) as client:
        result = await validated(client, script)
    assert result.is_error
    assert text_of(result).startswith("not validated: script: missing or empty")


async def test_without_an_engine_the_answer_says_what_was_checked_and_why_the_rest_was_not() -> None:
    async with connected(own={CHECK_SYNTAX: "searched"}) as client:
        result = await validated(client, "print(1)")
    assert result.is_error
    lines = text_of(result).splitlines()
    assert lines[0].startswith("not fully checked: no problem was found")
    assert lines[1].startswith("Syntax not checked: no sandbox can be made at present")
    assert "Start Docker." in lines[1]


async def test_hostile_words_of_the_checker_leave_a_result_that_can_be_sent() -> None:
    error = {"kind": "\x1b[31m", "message": "\ud800\u202e", "line": -5, "column": 10**9, "text": "\x00"}
    async with connected(own=own(error=error)) as client:
        result = await validated(client, "x")
    assert result.is_error
    assert "\x1b" not in text_of(result)


# -- check_environment -------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_the_environment_is_told_as_text_and_as_data(era: str) -> None:
    async with connected(era, own()) as client:
        result = await client.call_tool("check_environment", {})
    assert not result.is_error
    text = text_of(result)
    for words in ("can run: yes", "memory: 512 MiB", "--- Settings ---", "network devices: lo"):
        assert words in text
    data = data_of(result, ENVIRONMENT_KEY)
    assert data["can_run"] is True
    assert data["measured"]["uid"] == 58000


async def test_an_environment_in_which_nothing_runs_is_an_error_with_the_cause() -> None:
    async with connected(own={MEASURE: "unreachable"}) as client:
        result = await client.call_tool("check_environment", {})
    assert result.is_error
    assert "! can run: no -> no engine: start Docker" in text_of(result)


async def test_arguments_of_a_tool_that_takes_none_are_reported() -> None:
    async with connected(own=own()) as client:
        result = await client.call_tool("check_environment", {"verbose": True})
    assert not result.is_error
    assert "Note: Ignored unknown argument 'verbose'; this tool takes none." in text_of(result)


# -- all ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [READ, VALIDATE, CHECK], ids=["read", "validate", "check"])
def test_each_argument_has_its_accepted_form_and_each_other_name_leads_to_one(shape: Shape[Any]) -> None:
    fields = set(shape.model.model_fields)
    assert set(shape.forms) == fields
    assert set(shape.aliases.values()) | set(shape.meant.values()) <= fields


@pytest.mark.parametrize("tool", ["read_output", "validate_script", "check_environment"])
async def test_structured_content_when_asked_for_holds_the_text_too(tool: str) -> None:
    async with connected(own=own(), structured_output=True) as client:
        await call(client, "say x")
        result = await client.call_tool(tool, {"run_id": "fake-run-1", "script": "x"})
    assert isinstance(result.structured_content, dict)
    assert result.structured_content["text"] == text_of(result)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("tool", "program", "words"),
    [
        ("validate_script", CHECK_SYNTAX, "compiling the script"),
        ("check_environment", MEASURE, "measuring a sandbox"),
    ],
)
async def test_progress_names_the_phase_and_a_cancelled_call_leaves_the_server_well(
    era: str, tool: str, program: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_module.Progress.__init__, "__defaults__", (0.02, 0.05))
    told: list[str] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        told.append(message or "")

    async with connected(era, {program: "wait 60"}) as client:
        with anyio.move_on_after(0.5) as clock:
            await client.call_tool(tool, {"script": "x"}, progress_callback=note)
        assert clock.cancelled_caught
        assert not (await call(client, "say still here")).is_error
    assert any(words in message for message in told)
