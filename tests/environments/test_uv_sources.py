from pathlib import Path

import pytest

from python_exec_sandbox.environments.indexes import Indexes
from python_exec_sandbox.environments.uv_sources import Chosen, read_indexes
from python_exec_sandbox.errors import ConfigurationError


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".config" / "uv").mkdir(parents=True)
    return tmp_path


def user_file(home: Path, text: str) -> None:
    (home / ".config" / "uv" / "uv.toml").write_text(text)


def urls(found: Indexes) -> list[tuple[str, bool]]:
    return [(index.url, index.is_default) for index in found.indexes]


NO_SYSTEM = {"XDG_CONFIG_DIRS": "/nonexistent"}


def read(home: Path | None, chosen: Chosen | None = None, **variables: str) -> Indexes:
    return read_indexes(chosen or Chosen(), NO_SYSTEM | variables, home)


def test_without_any_settings_there_are_none(home: Path) -> None:
    assert read(home) == Indexes()
    assert read(None) == Indexes()


def test_settings_come_before_variables_and_variables_before_files(home: Path) -> None:
    user_file(
        home,
        'exclude-newer = "2020-01-01"\nindex-strategy = "first-index"\n'
        '[[index]]\nurl = "https://file.example/"\n'
        '[[index]]\nurl = "https://file-default.example/"\ndefault = true\n',
    )
    chosen = Chosen("https://set.example/", "https://extra.example/ https://more.example/", "2021-01-01")
    found = read(
        home,
        chosen,
        UV_INDEX="https://variable.example/",
        UV_DEFAULT_INDEX="https://variable-default.example/",
        UV_EXCLUDE_NEWER="2022-01-01",
    )
    assert urls(found) == [
        ("https://extra.example/", False),
        ("https://more.example/", False),
        ("https://set.example/", True),
        ("https://variable.example/", False),
        ("https://file.example/", False),
    ]
    assert (found.exclude_newer, found.strategy) == ("2021-01-01", "first-index")
    assert read(home, UV_EXCLUDE_NEWER="2022-01-01").exclude_newer == "2022-01-01"
    assert read(home).exclude_newer == "2020-01-01"


def test_old_names_of_variables_and_keys_are_understood(home: Path) -> None:
    user_file(
        home,
        'extra-index-url = ["https://b.example/"]\n[pip]\nindex-url = "https://pip.example/"\n'
        'find-links = ["https://links.example/"]\n',
    )
    assert urls(read(home)) == [("https://pip.example/", True), ("https://b.example/", False)]
    assert read(home).find_links == ("https://links.example/",)
    found = read(home, UV_INDEX_URL="https://old.example/", UV_EXTRA_INDEX_URL="https://x.example/")
    assert ("https://old.example/", True) in urls(found)
    assert ("https://pip.example/", True) not in urls(found)
    assert ("https://x.example/", False) in urls(found)


def test_a_named_index_gets_the_credentials_of_its_variables(home: Path) -> None:
    found = read(
        home,
        UV_INDEX="my-own=https://packages.example/simple/",
        UV_INDEX_MY_OWN_USERNAME="ada",
        UV_INDEX_MY_OWN_PASSWORD="s3cret:word",
    )
    assert urls(found) == [("https://ada:s3cret%3Aword@packages.example/simple/", False)]
    assert found.indexes[0].name == "my-own"


def test_a_netrc_is_only_asked_for_hosts_of_indexes(home: Path) -> None:
    login = home / ".netrc"
    login.write_text(
        "machine packages.example login ada password s3cretword\nmachine mail.example login bo password other\n"
    )
    login.chmod(0o600)
    found = read(home, UV_INDEX="https://packages.example/simple/ https://x:y@elsewhere.example/")
    assert urls(found)[0] == ("https://ada:s3cretword@packages.example/simple/", False)
    assert "other" not in found.for_uv().config
    moved = home / "elsewhere"
    login.rename(moved)
    assert (
        read(home, UV_INDEX="https://packages.example/", NETRC=str(moved))
        .indexes[0]
        .url.startswith("https://ada:")
    )


def test_a_netrc_that_cannot_be_read_is_only_noted(home: Path) -> None:
    (home / ".netrc").write_text("what is this")
    assert "no credentials were taken" in read(home).notes[0]


def test_the_settings_of_a_named_file_alone_count_or_none_at_all(home: Path, tmp_path: Path) -> None:
    user_file(home, 'index-url = "https://user.example/"\n')
    other = tmp_path / "other.toml"
    other.write_text('index-url = "https://other.example/"\n')
    assert urls(read(home, UV_CONFIG_FILE=str(other))) == [("https://other.example/", True)]
    assert urls(read(home, UV_NO_CONFIG="1")) == []


def test_the_systems_file_adds_to_the_users(home: Path, tmp_path: Path) -> None:
    user_file(home, '[[index]]\nurl = "https://user.example/"\n')
    (tmp_path / "etc" / "uv").mkdir(parents=True)
    (tmp_path / "etc" / "uv" / "uv.toml").write_text('[[index]]\nurl = "https://system.example/"\n')
    found = read(home, XDG_CONFIG_DIRS=f"/nonexistent:{tmp_path / 'etc'}")
    assert urls(found) == [("https://user.example/", False), ("https://system.example/", False)]


def test_nothing_is_read_from_the_folder_of_the_moment(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "uv.toml").write_text('index-url = "https://project.example/"\n')
    monkeypatch.chdir(tmp_path)
    assert urls(read(home)) == []


def test_explicit_indexes_are_not_asked(home: Path) -> None:
    user_file(home, '[[index]]\nname = "x"\nurl = "https://x.example/"\nexplicit = true\n')
    assert urls(read(home)) == []


@pytest.mark.parametrize(
    "link", ["/home/ada/wheels", "file:///wheels", "./here", "https://", "ftp://x.example/"]
)
def test_places_on_this_machine_are_left_out_with_a_note(home: Path, link: str) -> None:
    found = read(home, UV_FIND_LINKS=link, UV_INDEX=link)
    assert (found.find_links, found.indexes) == ((), ())
    assert any("installs see no files of this machine" in note for note in found.notes)


def test_proxies_come_from_variables_or_files_and_loopback_is_noted(home: Path) -> None:
    user_file(home, 'https-proxy = "http://file.example:1"\nno-proxy = ["a.example", "b.example"]\n')
    assert dict(read(home).proxies) == {
        "HTTPS_PROXY": "http://file.example:1",
        "NO_PROXY": "a.example,b.example",
    }
    found = read(home, https_proxy="http://127.0.0.1:3128", no_proxy="localhost")
    assert dict(found.proxies) == {"https_proxy": "http://127.0.0.1:3128", "no_proxy": "localhost"}
    assert len(found.notes) == 1
    assert "loopback" in found.notes[0]


@pytest.mark.parametrize("text", ['index-url = "https://ada:s3cret@x/', "index-url = s3cret"])
def test_a_file_that_is_not_toml_is_an_error_without_its_content(home: Path, text: str) -> None:
    user_file(home, text)
    with pytest.raises(ConfigurationError, match=r"uv\.toml is not valid TOML") as caught:
        read(home)
    assert "s3cret" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_wrong_kinds_of_values_are_passed_over(home: Path) -> None:
    user_file(home, 'index-url = 3\nfind-links = "x"\nindex = [1, {url = 2}]\npip = 4\nhttp-proxy = 1\n')
    assert read(home) == Indexes()


PEM = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"


def test_a_folder_of_certificates_is_joined_once_each_unless_there_is_a_bundle(
    home: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "certs"
    folder.mkdir()
    (folder / "a.pem").write_text(PEM)
    (folder / "b.crt").symlink_to("a.pem")
    (folder / "gone.pem").symlink_to("nowhere")
    (folder / "key.pem").write_text("-----BEGIN PRIVATE KEY-----\n")
    found = read(home, SSL_CERT_DIR=str(folder))
    assert found.certificates == PEM
    assert read(home, Chosen(has_ca_bundle=True), SSL_CERT_DIR=str(folder)).certificates == ""


def test_the_machines_own_certificates_go_along_where_uv_would_use_them(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = tmp_path / "bundle.pem"
    bundle.write_text(PEM)
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))  # what OpenSSL takes for the machine's own
    assert read(home).certificates == ""
    assert read(home, UV_SYSTEM_CERTS="true").certificates == PEM
    user_file(home, "native-tls = true\n")
    assert read(home).certificates == PEM
