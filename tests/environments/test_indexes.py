import tomllib

import pytest

from python_exec_sandbox.environments.indexes import (
    HIDDEN,
    Index,
    Indexes,
    credentials_of,
    with_credentials,
    without_credentials,
)

PRIVATE = "https://ada:s3cret%21word@packages.example/simple/"


def test_uv_gets_everything_in_a_file_it_can_read() -> None:
    indexes = Indexes(
        indexes=(
            Index(PRIVATE, "inner", options=(("authenticate", "always"), ("ignore-error-codes", [403, 404]))),
            Index("https://other.example/simple/", is_default=True),
        ),
        find_links=('https://files.example/"quoted"/',),
        no_index=True,
        strategy="unsafe-best-match",
        exclude_newer="7 days",
        insecure_hosts=("packages.example",),
        proxies=(("HTTPS_PROXY", "http://proxy.example:3128"),),
        timeouts=(("UV_HTTP_TIMEOUT", "5"),),
        certificates="PEM",
    )
    given = indexes.for_uv()
    assert tomllib.loads(given.config) == {
        "no-index": True,
        "find-links": ['https://files.example/"quoted"/'],
        "index-strategy": "unsafe-best-match",
        "exclude-newer": "7 days",
        "allow-insecure-host": ["packages.example"],
        "index": [
            {"url": PRIVATE, "name": "inner", "authenticate": "always", "ignore-error-codes": [403, 404]},
            {"url": "https://other.example/simple/", "default": True},
        ],
    }
    assert dict(given.variables) == {
        "HTTPS_PROXY": "http://proxy.example:3128",
        "UV_HTTP_TIMEOUT": "5",
    }
    assert given.certificates == "PEM"


def test_nothing_said_is_no_configuration_at_all() -> None:
    assert Indexes().for_uv().config == ""


def test_nothing_secret_is_in_what_a_log_could_show() -> None:
    indexes = Indexes(
        indexes=(Index(PRIVATE),), find_links=(PRIVATE,), proxies=(("ALL_PROXY", PRIVATE),), certificates="x"
    )
    for shown in (repr(indexes), repr(indexes.for_uv()), str(indexes.indexes[0])):
        assert "s3cret" not in shown


@pytest.mark.parametrize(
    "text",
    [
        "failed to fetch https://ada:s3cret%21word@packages.example/simple/six/",
        "the password was s3cret!word",
        "written as s3cret%21word here",
        "a token: t0ken-for-all",
        "through http://bo:pr0xyword@proxy.example:3128",
        "an address of somebody else https://x:short@else.example/",
    ],
)
def test_credentials_are_hidden_however_they_are_written(text: str) -> None:
    indexes = Indexes(
        indexes=(Index(PRIVATE), Index("https://t0ken-for-all@tokens.example/simple/")),
        proxies=(("HTTPS_PROXY", "http://bo:pr0xyword@proxy.example:3128"),),
    )
    hidden = indexes.hide(text)
    assert HIDDEN in hidden
    for secret in ("s3cret", "t0ken", "pr0xy", "short"):
        assert secret not in hidden


def test_short_passwords_hide_no_other_words() -> None:
    indexes = Indexes(indexes=(Index("https://a:no@packages.example/"),))
    assert indexes.hide("there is no package") == "there is no package"


def test_words_without_credentials_stay_as_they_are() -> None:
    text = "x @ https://files.example/a@b/x-1.0.tar.gz needs mail@example"
    assert without_credentials(text) == text


def test_credentials_go_into_the_address_unless_it_has_some() -> None:
    index = with_credentials(Index("https://packages.example:8443/simple/?a=b"), "ada", "p@ss/word")
    assert index.url == "https://ada:p%40ss%2Fword@packages.example:8443/simple/?a=b"
    assert with_credentials(index, "bo", "x") == index
    assert credentials_of(index.url) == ("ada", "p%40ss%2Fword")
    assert credentials_of("https://packages.example/") == ("", "")
