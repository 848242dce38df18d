import re
import string
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from python_exec_sandbox.api.arguments import ACCEPTED_FORMS, ExecuteArguments, input_schema, parse_call
from python_exec_sandbox.api.lists import argument_list, requirement_list
from python_exec_sandbox.errors import RequestError
from python_exec_sandbox.setting_values import Network
from python_exec_sandbox.settings import Settings


def dependencies_of(value: object) -> tuple[str, ...]:
    return parse_call({"script": "x", "dependencies": value}).arguments.dependencies


@pytest.mark.parametrize(
    ("value", "meaning"),
    [
        (["humanize"], ("humanize",)),
        ('["humanize"]', ("humanize",)),
        ("['humanize', \"six\"]", ("humanize", "six")),
        ("humanize", ("humanize",)),
        ("humanize, six", ("humanize", "six")),
        ("humanize\nsix\n", ("humanize", "six")),
        ("requests[socks,http2]>=2,<3, six", ("requests[socks,http2]>=2,<3", "six")),
        ("", ()),
        ("  ", ()),
        (None, ()),
        ([], ()),
        ("[]", ()),
        ("six[", ("six[",)),
    ],
)
def test_dependencies_are_understood_in_each_shape_that_clients_send(
    value: object, meaning: tuple[str, ...]
) -> None:
    assert dependencies_of(value) == meaning


@pytest.mark.parametrize(
    ("value", "place", "kind"),
    [
        (["humanize", 3], "dependencies[1]", "a number"),
        ({"a": 1}, "dependencies:", "an object"),
        (7, "dependencies:", "a number"),
        (True, "dependencies:", "a truth value"),
        ([["six"]], "dependencies[0]", "a list"),
        ('["six", 3]', "dependencies[1]", "a number"),
    ],
)
def test_a_wrong_shape_is_one_short_error_that_names_the_argument_and_the_accepted_form(
    value: object, place: str, kind: str
) -> None:
    with pytest.raises(RequestError) as caught:
        dependencies_of(value)
    text = str(caught.value)
    assert place in text
    assert kind in text
    assert ACCEPTED_FORMS["dependencies"] in text
    assert "\n" not in text
    assert len(text) < 200


def test_all_wrong_arguments_are_told_at_once() -> None:
    with pytest.raises(RequestError) as caught:
        parse_call({"script": 1, "args": {}, "stdin": [], "timeout_seconds": "abc", "python_version": []})
    for name in ("script", "args", "stdin", "timeout_seconds", "python_version"):
        assert f"{name}: " in str(caught.value)


@pytest.mark.parametrize("raw", [{}, {"script": ""}, {"script": None}, {"script": " \n"}, {"code": ""}])
def test_a_missing_script_is_told(raw: dict[str, object]) -> None:
    with pytest.raises(RequestError, match="script: missing or empty"):
        parse_call(raw)


def test_the_script_may_be_called_code() -> None:
    assert parse_call({"code": "print(1)"}).arguments.script == "print(1)"
    both = parse_call({"code": "1", "script": "2"})
    assert both.arguments.script == "2"
    assert both.notes == ("script and code mean the same; script was used.",)
    assert parse_call({"code": "1", "script": ""}).arguments.script == "1"


@pytest.mark.parametrize(
    ("name", "value", "field", "meaning"),
    [
        ("source", "1", "script", "1"),
        ("timeout", 5, "timeout_seconds", 5.0),
        ("packages", ["six"], "dependencies", ("six",)),
        ("requirements", "six\nattrs", "dependencies", ("six", "attrs")),
    ],
)
def test_names_that_models_use_for_an_argument_are_understood(
    name: str, value: object, field: str, meaning: object
) -> None:
    call = parse_call({"script": "x", name: value} if field != "script" else {name: value})
    assert getattr(call.arguments, field) == meaning
    assert not call.notes


def test_of_two_other_names_the_first_is_used_and_that_is_said() -> None:
    call = parse_call({"script": "x", "requirements": ["a"], "packages": ["b"]})
    assert call.arguments.dependencies == ("a",)
    assert call.notes == ("requirements and packages mean the same; requirements was used.",)


@pytest.mark.parametrize("name", [name for name in ExecuteArguments.model_fields if name != "script"])
@pytest.mark.parametrize("nothing", [None, ""])
def test_null_and_empty_text_mean_the_default(name: str, nothing: object) -> None:
    assert parse_call({"script": "x", name: nothing}).arguments == parse_call({"script": "x"}).arguments


def test_blank_input_is_input() -> None:
    assert parse_call({"script": "x", "stdin": "\n"}).arguments.stdin == "\n"


@pytest.mark.parametrize(
    ("value", "seconds"), [(5, 5.0), ("5", 5.0), ("1.5s", 1.5), ("00:01:00", 60.0), (-1, -1.0)]
)
def test_times_are_read_as_numbers_or_text(value: object, seconds: float) -> None:
    assert parse_call({"script": "x", "timeout_seconds": value}).arguments.timeout_seconds == seconds


@pytest.mark.parametrize("value", ["abc", True, [1], float("nan"), {}])
def test_what_is_no_time_is_told_with_the_accepted_forms(value: object) -> None:
    with pytest.raises(RequestError, match=r"timeout_seconds: .* number of seconds"):
        parse_call({"script": "x", "timeout_seconds": value})


@pytest.mark.parametrize(
    ("value", "meaning"),
    [
        (["-n", "5"], ("-n", "5")),
        (["-n", 5, 1.5], ("-n", "5", "1.5")),
        ("-n 'a b'", ("-n", "a b")),
        ('["-n", "a b"]', ("-n", "a b")),
        ("a,b", ("a,b",)),
    ],
)
def test_args_are_understood_as_a_list_or_as_a_command_line(value: object, meaning: tuple[str, ...]) -> None:
    assert parse_call({"script": "x", "args": value}).arguments.args == meaning


def test_an_open_quotation_mark_in_args_is_told() -> None:
    with pytest.raises(RequestError, match="args: No closing quotation"):
        parse_call({"script": "x", "args": "'a"})


@pytest.mark.parametrize(("value", "version"), [("3.14", "3.14"), (3.14, "3.14"), (3, "3")])
def test_a_version_may_be_sent_as_a_number(value: object, version: str) -> None:
    assert parse_call({"script": "x", "python_version": value}).arguments.python_version == version


def test_unknown_arguments_are_named_and_the_likely_one_is_suggested() -> None:
    notes = parse_call({"script": "x", "timeout_ms": 1, "\ud800": 2}).notes
    assert notes[0] == "Ignored unknown argument 'timeout_ms'; did you mean timeout_seconds?"
    assert "known are script, dependencies" in notes[1]
    for note in notes:
        note.encode()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("argv", "args"),
        ("arguments", "args"),
        ("input", "stdin"),
        ("python", "python_version"),
        ("dependancies", "dependencies"),
        ("Timeout-Seconds", "timeout_seconds"),
    ],
)
def test_what_a_name_may_have_meant_is_suggested(name: str, meant: str) -> None:
    assert parse_call({"script": "x", name: 1}).notes == (
        f"Ignored unknown argument '{name}'; did you mean {meant}?",
    )


@pytest.mark.parametrize("name", ["language", "lang", "env", "files", "cwd", "description"])
def test_a_name_that_is_like_none_leads_to_no_guess(name: str) -> None:
    assert "did you mean" not in parse_call({"script": "x", name: 1}).notes[0]


def test_packages_can_be_named_even_where_scripts_have_no_network() -> None:
    offline = input_schema(Settings(ca_bundle=None, network=Network.NONE))["properties"]["dependencies"]
    assert "Packages to install first" in offline["description"]


def test_unknown_arguments_are_named_in_an_error_too() -> None:
    with pytest.raises(
        RequestError,
        match=r"script: missing or empty\. Accepted: .* text\. Ignored unknown argument 'scrypt'; did you mean script",
    ):
        parse_call({"scrypt": "print(1)"})


def test_the_schema_is_one_flat_object_that_clients_can_read_without_defaults_or_bounds() -> None:
    schema = input_schema(Settings(max_timeout=77))
    assert schema["type"] == "object"
    assert not {"anyOf", "oneOf", "allOf", "$ref", "$defs"} & schema.keys()
    assert schema["required"] == ["script"]
    assert schema["properties"].keys() == ExecuteArguments.model_fields.keys()
    for name, one in schema["properties"].items():
        assert isinstance(one["type"], str)
        assert len(one["description"]) <= 1000
        assert name == "script" or "Default: " in one["description"]
    assert "77" in schema["properties"]["timeout_seconds"]["description"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*ExecuteArguments.model_fields, "code", "other"]), json_values))
def test_whatever_a_client_sends_is_understood_or_refused_and_nothing_else(raw: dict[str, object]) -> None:
    try:
        call = parse_call(raw)
    except RequestError:
        return
    assert call.arguments.script


@given(st.lists(st.text(string.ascii_lowercase, min_size=1, max_size=8), max_size=6))
def test_names_joined_by_commas_are_the_list_of_them(names: list[str]) -> None:
    assert requirement_list(", ".join(names)) == names


@given(st.text("ab,<>=~! \n\t[](){}\"'", max_size=40) | st.text(max_size=40))
def test_splitting_loses_nothing_but_commas_and_blanks(text: str) -> None:
    value = requirement_list(text)
    assert isinstance(value, list)
    if text.strip().startswith("["):
        return  # may be a written list
    assert re.sub(r"[,\s]", "", "".join(value)) == re.sub(r"[,\s]", "", text)


def test_a_list_is_left_as_it_is() -> None:
    assert requirement_list(["a", 1]) == ["a", 1]
    assert argument_list(["a", True]) == ["a", True]


def test_thousands_of_unknown_arguments_are_named_by_a_few() -> None:
    began = time.process_time()
    call = parse_call({"script": "1"} | {f"x{n}": n for n in range(200_000)})
    assert time.process_time() - began < 5  # comparing each with each takes minutes
    assert len(call.notes) == 6
    assert call.notes[-1] == "Ignored 199,995 more unknown arguments."
