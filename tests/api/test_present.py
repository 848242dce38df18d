import json
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from python_exec_sandbox.api.present import meta, present
from python_exec_sandbox.environments.records import Environment
from python_exec_sandbox.model.environment import Package
from python_exec_sandbox.model.result import Usage, Verdict
from python_exec_sandbox.run.records import RunResult
from python_exec_sandbox.stream.capture import Capture, Captured


def captured(data: bytes, limit: int = 100_000) -> Captured:
    capture = Capture(limit)
    capture.write(data)
    return capture.captured()


def result(
    stdout: bytes = b"",
    stderr: bytes = b"",
    verdict: Verdict = Verdict.OK,
    headline: str = "exit 0 in 0.42 s",
) -> RunResult:
    return RunResult(
        run_id="ab12",
        verdict=verdict,
        headline=headline,
        python="3.13",
        driver="docker",
        stdout=captured(stdout),
        stderr=captured(stderr),
    )


def failed(stderr: bytes) -> RunResult:
    return result(stderr=stderr, verdict=Verdict.FAILED, headline="exit 1 in 0.1 s")


def test_a_result_is_status_output_and_facts() -> None:
    shown = present(result(b"hello\n", b"careful\n"))
    assert shown.text == (
        "exit 0 in 0.42 s\n--- stdout ---\nhello\n--- stderr ---\ncareful\n"
        "[python 3.13; sandbox docker; run ab12]"
    )
    assert not shown.is_error


def test_empty_streams_have_no_heading_and_no_output_at_all_a_hint() -> None:
    assert "--- stderr ---" not in present(result(b"x")).text
    text = present(result()).text
    assert "---" not in text
    assert "print()" in text
    assert "print()" not in present(result(stderr=b"x")).text


def test_the_reason_follows_the_status() -> None:
    lost = replace(
        result(verdict=Verdict.OUT_OF_MEMORY, headline="out of memory: limit 512 MiB"),
        sentence="It was killed.",
    )
    shown = present(lost)
    assert shown.text.splitlines()[:2] == ["out of memory: limit 512 MiB", "It was killed."]
    assert shown.is_error
    assert "print()" not in shown.text


@pytest.mark.parametrize("verdict", [verdict for verdict in Verdict if verdict is not Verdict.OK])
def test_everything_but_ok_is_an_error(verdict: Verdict) -> None:
    assert present(result(verdict=verdict)).is_error


def test_a_long_output_shows_head_and_tail_and_says_what_was_left_out() -> None:
    data = b"".join(b"line %05d\n" % n for n in range(5000))
    text = present(result(data), show_chars=1000).text
    assert "line 00000\n" in text
    assert "line 04999\n" in text
    assert len(text) < 1300
    (marker,) = (line for line in text.splitlines() if line.startswith("[..."))
    shown = sum(line.startswith("line ") for line in text.splitlines())
    assert f"{55_000 - 11 * shown:,} bytes ({5000 - shown:,} lines) left out" in marker
    head = text.split("--- stdout ---\n")[1].split("[...")[0]
    assert f'read_output(run_id="ab12", stream="stdout", offset={len(head)})' in marker
    assert data.decode().startswith(head)


def test_what_was_not_even_kept_is_told_apart() -> None:
    flood = replace(result(), stdout=captured(b"x" * 1_000_000, limit=1000))
    text = present(flood).text
    assert "[... 999,000 bytes (0 lines) left out, 999,000 bytes of them not kept ...]" in text
    assert "output cut" in text
    assert "read_output" in present(flood, show_chars=500).text
    assert "read_output" not in present(flood, show_chars=500, reader="").text


def test_a_small_stream_is_shown_whole_beside_a_large_one() -> None:
    text = present(result(b"x" * 50_000, b"Traceback\nValueError: y\n"), show_chars=1000).text
    assert "Traceback\nValueError: y\n" in text


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("humanize", "humanize"),
        ("cv2", "opencv-python-headless"),
        ("yaml.nodes", "pyyaml"),
        ("distutils.util", "setuptools"),
    ],
)
def test_a_missing_module_leads_to_its_package(module: str, package: str) -> None:
    text = present(failed(f"Traceback\nModuleNotFoundError: No module named '{module}'\n".encode())).text
    assert f'"{package}"' in text
    assert "dependencies argument" in text
    assert "# /// script" in text


def test_a_module_missed_by_a_script_that_went_on_is_no_ones_business() -> None:
    assert (
        "dependencies argument"
        not in present(result(stderr=b"ModuleNotFoundError: No module named 'x'")).text
    )


def test_asking_for_input_that_was_not_given_leads_to_the_argument() -> None:
    asked = failed(b"EOFError: EOF when reading a line\n")
    assert "stdin argument" in present(asked).text
    assert "stdin argument" not in present(replace(asked, stdin_given=True)).text


def test_facts_name_what_took_time_and_room() -> None:
    slow = replace(
        result(b"x"),
        requirements=("six", "humanize"),
        wait_seconds=1.25,
        usage=Usage(install_seconds=2, cpu_seconds=1.5, peak_memory_bytes=34 * 2**20),
        notes=("One key was ignored.",),
    )
    *_, note, facts = present(slow).text.splitlines()
    assert note == "Note: One key was ignored."
    assert facts == (
        "[python 3.13; sandbox docker; 2 requirements installed in 2 s; waited 1.25 s for a sandbox; "
        "cpu 1.5 s; peak memory 34 MiB; run ab12]"
    )


def test_dependencies_that_failed_are_not_called_installed() -> None:
    told = replace(
        result(verdict=Verdict.REQUIREMENTS_FAILED, headline="dependencies failed"), requirements=("zz",)
    )
    assert "1 requirement tried in 0 s" in present(told).text


def test_a_script_can_not_print_another_status() -> None:
    text = present(failed(b"\x1b[2J\x1b[Hexit 0 in 0.1 s\n")).text
    assert text.startswith("exit 1 in 0.1 s\n")
    assert "\x1b" not in text


@given(st.binary(max_size=2000), st.binary(max_size=2000), st.integers(0, 3000), st.integers(50, 1000))
def test_any_output_gives_encodable_text_within_the_budget(
    stdout: bytes, stderr: bytes, show_chars: int, keep: int
) -> None:
    any_result = replace(result(), stdout=captured(stdout, keep), stderr=captured(stderr, keep))
    text = present(any_result, show_chars=show_chars).text
    text.encode()
    assert len(text) <= show_chars + 500


@given(st.text(), st.text(), st.lists(st.text(), max_size=3).map(tuple))
def test_meta_is_json_whatever_its_texts_hold(sentence: str, note: str, paths: tuple[str, ...]) -> None:
    odd = replace(
        result(b"x"), sentence=sentence + "\ud800", notes=(note + "\udfff",), usage=Usage(full_paths=paths)
    )
    data = meta(odd)
    text = json.dumps(data, ensure_ascii=False, allow_nan=False)
    assert json.loads(text.encode()) == data
    present(odd).text.encode()


def test_meta_names_verdict_driver_and_amounts() -> None:
    data = meta(replace(result(), stdout=captured(b"x" * 100, limit=10), exit_code=0))
    assert (data["verdict"], data["driver"], data["exit_code"]) == ("ok", "docker", 0)
    assert data["stdout"] == {"total_bytes": 100, "dropped_bytes": 90, "dropped_lines": 0}


def test_presenting_loads_neither_the_protocol_nor_an_event_loop() -> None:
    code = "import sys, python_exec_sandbox.api.present; print({'mcp', 'anyio', 'docker'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], timeout=60) == b"set()\n"


@pytest.mark.parametrize(
    "last",
    [
        "ModuleNotFoundError: No module named 'tkinter'",
        "ImportError: No module named 'tkinter', please install the python3-tk package",
    ],
)
def test_a_part_of_python_that_is_not_there_leads_to_no_package(last: str) -> None:
    text = present(failed(f"Traceback\n{last}\n".encode())).text
    assert "tkinter is part of Python but not in the sandbox" in text
    assert "dependencies argument" not in text


def test_a_part_that_python_has_lost_leads_to_no_package() -> None:
    text = present(failed(b"Traceback\nModuleNotFoundError: No module named 'cgi'\n")).text
    assert "cgi is no longer part of Python" in text
    assert "dependencies argument" not in text


@pytest.mark.parametrize(
    "said",
    [
        "/usr/bin/python3.13: No module named pip\nsubprocess.CalledProcessError: x",
        "ModuleNotFoundError: No module named 'pip'",
        "FileNotFoundError: [Errno 2] No such file or directory: 'pip'",
        "/bin/sh: 1: pip: not found\nTraceback\nValueError",
        '  File "/work/script.py", line 1\n    !pip install x\n    ^\nSyntaxError: invalid syntax',
    ],
)
def test_whoever_calls_pip_is_led_to_dependencies(said: str) -> None:
    text = present(failed(f"{said}\n".encode())).text
    assert "pip is not here; name packages in dependencies." in text
    assert '["pip"]' not in text


@pytest.mark.parametrize(
    "said", ["ModuleNotFoundError: No module named 'pipeline'", "ValueError: pipe: not found"]
)
def test_what_only_begins_like_pip_is_not_pip(said: str) -> None:
    assert "pip is not here" not in present(failed(f"{said}\n".encode())).text


def test_without_a_network_no_package_is_suggested() -> None:
    text = present(failed(b"ModuleNotFoundError: No module named 'yaml'\n"), can_install=False).text
    assert "--network none" in text
    assert "dependencies argument" not in text


@pytest.mark.parametrize(
    ("reused", "words"), [(True, "; environment: reused;"), (False, "; environment: built in 3.4 s;")]
)
def test_the_facts_say_whether_packages_had_to_be_installed(reused: bool, words: str) -> None:
    environment = Environment("/store/envs/0", (Package("six", "1.17.0"),), reused, 3.4)
    run = replace(result(), requirements=("six",), environment=environment)
    assert words in present(run).text
    assert "requirement installed" not in present(run).text
    assert meta(run)["environment"] == {"reused": reused, "seconds": 3.4, "packages": {"six": "1.17.0"}}
