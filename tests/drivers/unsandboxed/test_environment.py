from pathlib import Path

from python_exec_sandbox.drivers.unsandboxed.environment import (
    config_candidates,
    script_environment,
    uv_environment,
)

SERVER = {
    "HOME": "/home/ann",
    "PATH": "/home/ann/bin:/usr/bin",
    "USER": "ann",
    "TZ": "Europe/Vienna",
    "AWS_SECRET_ACCESS_KEY": "secret-1",
    "UV_INDEX_CORP_PASSWORD": "secret-2",
    "UV_DEFAULT_INDEX": "https://ann:secret-3@index.invalid/simple",
    "HTTPS_PROXY": "http://ann:secret-4@proxy.invalid",
    "UV_CACHE_DIR": "/somewhere",
    "UV_PYTHON": "3.9",
    "PYTHONPATH": "/home/ann/lib",
    "LANG": "de_AT.UTF-8",
}


def test_a_script_gets_a_fixed_list_of_variables_and_no_secret_of_the_server() -> None:
    given = script_environment(SERVER, "/run/home", "/run/tmp")
    assert given == {
        "HOME": "/run/home",
        "TMPDIR": "/run/tmp",
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "LANG": "de_AT.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "USER": "ann",
        "TZ": "Europe/Vienna",
    }


def test_a_locale_that_is_not_utf8_is_replaced() -> None:
    assert script_environment({"LANG": "C"}, "h", "t")["LANG"] == "C.UTF-8"
    assert script_environment({}, "h", "t")["LANG"] == "C.UTF-8"
    assert script_environment({"LC_ALL": "en_US.utf8", "LANG": "C"}, "h", "t")["LANG"] == "en_US.utf8"


def test_uv_gets_what_says_where_packages_come_from_and_the_persons_cache() -> None:
    given = uv_environment(SERVER, "/home/ann/.cache/uv", "/home/ann/.config/uv/uv.toml")
    assert given == {
        "UV_INDEX_CORP_PASSWORD": "secret-2",
        "UV_DEFAULT_INDEX": SERVER["UV_DEFAULT_INDEX"],
        "HTTPS_PROXY": SERVER["HTTPS_PROXY"],
        "UV_CACHE_DIR": "/home/ann/.cache/uv",
        "UV_CONFIG_FILE": "/home/ann/.config/uv/uv.toml",
        "UV_LINK_MODE": "copy",
        "UV_NO_PROGRESS": "1",
        "UV_PYTHON_DOWNLOADS": "never",
    }


def test_the_persons_settings_of_uv_are_looked_for_where_uv_would() -> None:
    assert config_candidates({"HOME": "/h"}) == [Path("/h/.config/uv/uv.toml")]
    assert config_candidates({"HOME": "/h", "XDG_CONFIG_HOME": "/x"}) == [Path("/x/uv/uv.toml")]
    assert config_candidates({"HOME": "/h", "UV_CONFIG_FILE": "/u.toml"}) == [Path("/u.toml")]
    assert config_candidates({}) == []
