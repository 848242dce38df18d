import math
from pathlib import Path

import pytest

from python_exec_sandbox.errors import ConfigurationError
from python_exec_sandbox.flags import RunCommand, ServeCommand, parse_command
from python_exec_sandbox.model.limits import MIB, RUNNER_RESERVE_BYTES
from python_exec_sandbox.setting_sources import load_settings
from python_exec_sandbox.setting_values import Network, PullPolicy, parse_seconds
from python_exec_sandbox.settings import ENV_PREFIX, Flag, Settings


@pytest.fixture(autouse=True)
def _empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)


def settings_of(*argv: str) -> Settings:
    command = parse_command(argv)
    return load_settings(command.flags, command.config)


def test_the_defaults_are_those_that_the_help_names() -> None:
    settings = settings_of()
    for name, field in Settings.model_fields.items():
        flag = next(mark for mark in field.metadata if isinstance(mark, Flag))
        if not flag.metavar or not flag.default or getattr(settings, name) is None:
            continue
        assert getattr(load_settings({name: flag.default}), name) == getattr(settings, name), name


def test_each_setting_has_a_flag_that_reaches_it() -> None:
    other = {
        "python_version": ("3.14", "3.14"),
        "max_timeout": ("00:01:30", 90.0),
        "default_timeout": ("45s", 45.0),
        "install_timeout": ("45", 45.0),
        "network": ("none", Network.NONE),
        "allow_domain": ("example.org *.example.net", "example.org *.example.net"),
        "allow_address": ("10.0.0.0/8", "10.0.0.0/8"),
        "allow_port": ("8080", "8080"),
        "resolution_ttl": ("00:10:00", 600.0),
        "store": ("my-store", "my-store"),
        "python_mirror": ("https://pythons.example", "https://pythons.example"),
        "store_size": ("1GiB", 1024 * MIB),
        "docker_host": ("tcp://engine:1", "tcp://engine:1"),
        "runtime": ("runsc", "runsc"),
        "image": ("a:b", "a:b"),
        "base_image": ("c:d", "c:d"),
        "pull_policy": ("ALWAYS", PullPolicy.ALWAYS),
        "ca_bundle": (__file__, Path(__file__)),
        "memory": ("1GiB", 1024 * MIB),
        "cpus": ("2.5", 2.5),
        "pids": ("64", 64),
        "disk": ("64MiB", 64 * MIB),
        "max_output_bytes": ("1MB", 1_000_000),
        "show_chars": ("500", 500),
        "output_kill_bytes": ("1MiB", MIB),
        "max_sandboxes": ("4", 4),
        "pool_size": ("0", 0),
        "max_waiting": ("0", 0),
        "idle_timeout": ("5", 5.0),
        "settle_time": ("0", 0.0),
        "log_level": ("DEBUG", "debug"),
        "uv_path": ("/opt/uv", "/opt/uv"),
        "source_builds": ("REFUSE", "refuse"),
        "index_url": ("https://packages.example/simple/", "https://packages.example/simple/"),
        "extra_index_url": ("https://a.example/ https://b.example/", "https://a.example/ https://b.example/"),
        "exclude_newer": ("7 days", "7 days"),
        "sandbox_backend": ("NONE", "none"),
    }
    switches = {"only_index", "structured_output", "no_warm_cache", "allow_unsandboxed"}
    assert other.keys() | switches == set(Settings.model_fields)
    for name, (text, value) in other.items():
        assert getattr(settings_of(f"--{name.replace('_', '-')}", text), name) == value, name
    for name in switches:
        assert getattr(settings_of(f"--{name.replace('_', '-')}"), name) is True


def test_a_flag_beats_the_variable_which_beats_the_file_which_beats_the_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('pids = 100\ncpus = 3\npool_size = 4\nmemory = "1GiB"\n')
    monkeypatch.setenv("PYTHON_EXEC_SANDBOX_PIDS", "200")
    monkeypatch.setenv("PYTHON_EXEC_SANDBOX_CPUS", "4")
    settings = settings_of("--pids", "300", "--config", str(file))
    assert (settings.pids, settings.cpus, settings.pool_size, settings.max_waiting) == (300, 4.0, 4, 32)
    assert settings.memory == 1024 * MIB


def test_the_file_may_be_named_by_a_variable_and_its_keys_may_have_dashes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("pool-size = 1\nstructured-output = true\n")
    monkeypatch.setenv("PYTHON_EXEC_SANDBOX_CONFIG", str(file))
    settings = settings_of()
    assert settings.pool_size == 1
    assert settings.structured_output


def test_an_empty_variable_is_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON_EXEC_SANDBOX_IMAGE", "")
    monkeypatch.setenv("PYTHON_EXEC_SANDBOX_PIDS", "")
    settings = settings_of()
    assert (settings.image, settings.pids) == (None, 128)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--memory", "5x"], ["--memory 5x", "512MiB"]),
        (["--memory", "-3"], ["--memory -3", "512MiB"]),
        (["--memory", "1MiB"], ["--memory 1MiB", "128 MiB"]),
        (["--index-url", "/srv/wheels"], ["--index-url /srv/wheels", "https://packages.example"]),
        (["--index-url", "https://a:hunter2@x.example/"], ["https://****@x.example/", "UV_DEFAULT_INDEX"]),
        (["--extra-index-url", "https://x.example/ tok3n"], ["--extra-index-url", "address such as"]),
        (["--exclude-newer", "yesterday"], ["--exclude-newer yesterday", "7 days"]),
        (["--pids", "0"], ["--pids 0", "between 16 and 32768"]),
        (["--pids", "1.5"], ["--pids 1.5", "whole number"]),
        (["--cpus", "nan"], ["--cpus nan", "between 0.1 and 256"]),
        (["--cpus", "-1"], ["--cpus -1", "between 0.1 and 256"]),
        (["--cpus", "many"], ["--cpus many", "not a number"]),
        (["--max-timeout", "0"], ["--max-timeout 0", "0.1 s"]),
        (["--max-timeout", "-1"], ["--max-timeout -1", "0.1 s"]),
        (["--max-timeout", "1e9"], ["--max-timeout 1e9", "86400 s"]),
        (["--max-timeout", "nan"], ["--max-timeout nan", "finite"]),
        (["--max-timeout", "abc"], ["--max-timeout abc", "00:01:30"]),
        (["--default-timeout", "400"], ["--default-timeout 400", "--max-timeout 300"]),
        (["--pool-size", "9"], ["--pool-size 9", "--max-sandboxes 8"]),
        (["--disk", "1GiB"], ["--memory 512MiB", "--disk 1GiB", "--memory 1104MiB"]),
        (["--sandbox-backend", "podman"], ["podman", "'docker', 'native' or 'none'"]),
        (
            ["--sandbox-backend", "none", "--network", "none"],
            ["--network none can't be kept with --sandbox-backend none"],
        ),
        (
            ["--sandbox-backend", "none", "--network", "filtered"],
            ["--network filtered can't be kept with --sandbox-backend none"],
        ),
        (["--allow-domain", "*.co.uk"], ["--allow-domain *.co.uk", "too wide"]),
        (["--allow-domain", "*"], ["--allow-domain *", "no domain"]),
        (["--allow-address", "10.0.0.0/33"], ["--allow-address 10.0.0.0/33", "no address or range"]),
        (["--allow-port", "http"], ["--allow-port http", "no port"]),
        (
            ["--allow-port", "22", "--network", "full"],
            ["--allow-port opens a part of the filtered network, not of --network full"],
        ),
        (
            ["--allow-unsandboxed", "--network", "none"],
            ["--network none can't be kept with --allow-unsandboxed"],
        ),
        (
            ["--sandbox-backend", "none", "--python-version", "snake"],
            ["--python-version snake is no version"],
        ),
        (["--allow-unsandboxd"], ["unknown option --allow-unsandboxd; did you mean --allow-unsandboxed?"]),
        (["--network", "some"], ["--network some", "'none', 'filtered' or 'full'"]),
        (
            ["--sandbox-backend", "docker", "--python-version", "2.7"],
            ["--python-version 2.7 is not available", "3.13, 3.14, 3.15", "--image"],
        ),
        (
            ["--sandbox-backend", "docker", "--python-version", "3.12"],
            ["--python-version 3.12 is not available", "3.13, 3.14, 3.15"],
        ),
        (
            ["run", "x.py", "--sandbox-backend", "docker", "--python-version", "3.12"],
            ["--python-version 3.12 is not available"],
        ),
        (
            ["--sandbox-backend", "docker", "--image", "a:b", "--python-version", "snake"],
            ["--python-version snake is not available"],
        ),
        (["--python-mirror", "https://me:secret@x.example"], ["--python-mirror", "has credentials in it"]),
        (["--python-mirror", "/some/folder"], ["--python-mirror", "is not the address of a server"]),
        (["--ca-bundle", "/no/such/file"], ["--ca-bundle", "not an existing file"]),
        (["--pool-sze", "3"], ["unknown option --pool-sze; did you mean --pool-size?"]),
        (
            ["run", "x.py", "--verbose"],
            ["unknown option --verbose", "options of the script itself follow --"],
        ),
        (["serve"], ["unknown command serve", "run FILE"]),
        (["--memory"], ["--memory"]),
        (["surprise"], ["surprise"]),
        (["--", "x"], ["run command"]),
        (["run"], ["FILE"]),
    ],
)
def test_a_bad_value_is_one_line_that_names_it_and_what_is_accepted(
    argv: list[str], words: list[str]
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        settings_of(*argv)
    text = str(caught.value)
    assert "\n" not in text
    for word in words:
        assert word in text


def test_two_bad_values_are_both_named_and_nothing_that_only_follows_from_them() -> None:
    with pytest.raises(ConfigurationError) as caught:
        settings_of("--memory", "x", "--max-timeout", "y")
    assert str(caught.value).count(" is not a ") == 2


def test_a_bad_variable_is_named_as_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON_EXEC_SANDBOX_POOL_SIZE", "99")
    with pytest.raises(ConfigurationError, match="PYTHON_EXEC_SANDBOX_POOL_SIZE 99 must be between 0 and 64"):
        settings_of()


def test_an_unknown_variable_with_our_prefix_is_an_error_with_the_closest_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHON_EXEC_SANDBOX_POOLSIZE", "3")
    with pytest.raises(ConfigurationError, match="did you mean PYTHON_EXEC_SANDBOX_POOL_SIZE"):
        settings_of()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("pools = 3\n", "unknown setting pools"),
        ("cpus = 0\n", ": cpus = 0 must be between 0.1 and 256"),
        ('pool_size = "a"\n', ': pool-size = "a" is not a whole number'),
        ("python-version = 3.13\n", "quotes"),
        ("pids = [1]\n", "whole number"),
        ("pids = \n", "not a TOML file"),
    ],
)
def test_a_bad_file_is_named_with_what_is_wrong_in_it(tmp_path: Path, content: str, words: str) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(content)
    with pytest.raises(ConfigurationError) as caught:
        settings_of("--config", str(file))
    assert words in str(caught.value)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="can't be read"):
        settings_of("--config", str(tmp_path / "absent.toml"))


def test_a_lower_maximum_lowers_the_defaults_that_depend_on_it() -> None:
    settings = settings_of("--max-timeout", "10", "--max-sandboxes", "1", "--memory", "256MiB")
    assert (settings.default_timeout, settings.pool_size) == (10.0, 1)
    assert settings.disk < 256 * MIB


@pytest.mark.parametrize("memory", ["128MiB", "200MiB", "512MiB", "4GiB"])
def test_what_scripts_may_write_fits_into_the_memory_with_the_runner(memory: str) -> None:
    limits = settings_of("--memory", memory).sandbox_limits()
    assert limits.disk_bytes + limits.environment_bytes + RUNNER_RESERVE_BYTES <= limits.memory_bytes
    assert limits.environment_bytes > 0


def test_the_servers_own_certificates_are_the_default_where_the_file_exists(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", __file__)
    assert settings_of().ca_bundle == Path(__file__)
    monkeypatch.setenv("SSL_CERT_FILE", "/no/such/file")
    assert settings_of().ca_bundle is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("45", 45.0),
        ("45s", 45.0),
        (" 1.5 s", 1.5),
        ("00:01:30", 90.0),
        ("1:00:00", 3600.0),
        (7, 7.0),
        ("-2", -2.0),
    ],
)
def test_seconds_are_read_in_each_accepted_form(text: object, seconds: float) -> None:
    assert math.isclose(parse_seconds(text), seconds)


@pytest.mark.parametrize("value", ["", "abc", "nan", "inf", "1:2", "00:99:00", True, None, [1], "1e999", "s"])
def test_anything_else_is_no_number_of_seconds(value: object) -> None:
    with pytest.raises(ValueError, match="number of seconds"):
        parse_seconds(value)


def test_the_run_command_keeps_the_scripts_own_arguments_apart() -> None:
    command = parse_command(
        ["run", "x.py", "-d", "six", "--dependency", "attrs", "--timeout", "3", "--", "--pids", "--"]
    )
    assert command == RunCommand(
        flags={}, config=None, file="x.py", args=("--pids", "--"), dependencies=("six", "attrs"), timeout="3"
    )


@pytest.mark.parametrize(
    ("argv", "flags", "args", "timeout"),
    [
        (["--pids", "99", "run", "x.py"], {"pids": "99"}, (), None),
        (
            ["--pids=99", "--structured-output", "run", "x.py"],
            {"pids": "99", "structured_output": True},
            (),
            None,
        ),
        (["--image", "run", "run", "x.py"], {"image": "run"}, (), None),
        (["--timeout", "3", "run", "x.py"], {}, (), "3"),
        (["run", "x.py", "a", "--timeout", "3", "b"], {}, ("a", "b"), "3"),
        (["run", "--timeout", "3", "x.py", "a", "--", "--pids"], {}, ("a", "--pids"), "3"),
    ],
)
def test_options_may_stand_anywhere_and_what_else_follows_the_file_is_the_scripts(
    argv: list[str], flags: dict[str, object], args: tuple[str, ...], timeout: str | None
) -> None:
    assert parse_command(argv) == RunCommand(
        flags=flags, config=None, file="x.py", args=args, dependencies=(), timeout=timeout
    )


def test_the_flags_and_defaults_of_the_program_it_can_replace_are_kept() -> None:
    """So that an existing entry of a client works: the same names, the same defaults where the same is meant."""
    argv = (
        "--python-version 3.13 --sandbox-backend native --max-timeout 300 --default-timeout 30"
        " --max-output-bytes 102400 --no-warm-cache --uv-path uv"
    )
    given, default = settings_of(*argv.split()), settings_of()
    changed = {"sandbox_backend", "no_warm_cache"}
    assert given.model_dump(exclude=changed) == default.model_dump(exclude=changed)


def test_scripts_on_the_machine_itself_may_have_any_python_that_it_has() -> None:
    assert settings_of("--sandbox-backend", "none", "--python-version", "3.11").python_version == "3.11"


def test_no_setting_but_the_two_named_ones_lets_a_script_out_of_a_sandbox() -> None:
    assert not settings_of().may_run_unsandboxed
    assert not settings_of("--sandbox-backend", "native", "--uv-path", "/opt/uv").may_run_unsandboxed
    assert settings_of("--sandbox-backend", "none").may_run_unsandboxed
    assert settings_of("--allow-unsandboxed").may_run_unsandboxed


def test_an_image_of_ones_own_may_have_another_python() -> None:
    assert settings_of("--image", "a:b", "--python-version", "3.12").python_version == "3.12"


def test_the_help_says_how_memory_is_split(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_command(["help"])
    text = capsys.readouterr().out
    limits = Settings(ca_bundle=None).sandbox_limits()
    assert limits.environment_bytes == limits.memory_bytes - limits.disk_bytes - 64 * MIB
    assert "packages may take it less --disk and 64MiB" in text
    assert "/work 1/2, /tmp 1/4, /dev/shm 3/16, home 1/16" in text


def test_without_a_command_the_server_is_meant() -> None:
    assert parse_command(["--pids", "99"]) == ServeCommand(flags={"pids": "99"}, config=None)


def test_help_shows_each_setting_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_command(["--help"])
    assert ended.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    for name in Settings.model_fields:
        assert sum(line.startswith(f"  --{name.replace('_', '-')} ") for line in lines) == 1, name
    assert all(len(line) <= 110 for line in lines)
    assert any(ENV_PREFIX in line for line in lines)


def test_a_flag_takes_back_what_a_variable_switched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON_EXEC_SANDBOX_STRUCTURED_OUTPUT", "true")
    assert settings_of().structured_output
    assert not settings_of("--structured-output=false").structured_output
    assert settings_of("--structured-output=on").structured_output
    with pytest.raises(ConfigurationError, match="--structured-output maybe is neither true nor false"):
        settings_of("--structured-output=maybe")
