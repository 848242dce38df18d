import errno
import stat
from pathlib import Path

import pytest

from builder.installer import Installer, InstallerFailed, InstallerKilled, NeedsSource, Settings


def installer(tmp_path: Path, script: str, told: list[str] | None = None) -> Installer:
    """One whose ``uv`` is the shell script ``script``."""
    uv = tmp_path / "uv"
    uv.write_text(f"#!/bin/sh\n{script}\n")
    uv.chmod(uv.stat().st_mode | stat.S_IXUSR)
    return Installer(str(tmp_path / "cache"), (told if told is not None else []).append, str(uv))


def test_what_is_downloaded_is_told_with_its_size(tmp_path: Path) -> None:
    told: list[str] = []
    uv = installer(tmp_path, "echo 'Downloading pandas (11.4MiB)' >&2; echo ' Downloaded pandas' >&2", told)
    uv.make("python", "folder")
    assert told == ["downloading pandas (11.4 MiB)"]


def test_what_uv_says_when_it_fails_is_kept(tmp_path: Path) -> None:
    with pytest.raises(InstallerFailed, match="no such thing"):
        installer(tmp_path, "echo 'error: no such thing' >&2; exit 2").make("python", "folder")


def test_uv_killed_for_memory_is_told_from_uv_that_failed(tmp_path: Path) -> None:
    with pytest.raises(InstallerKilled):
        installer(tmp_path, "kill -9 $$").make("python", "folder")


def test_a_full_disk_is_told_from_what_is_wrong_with_the_requirements(tmp_path: Path) -> None:
    said = "error: failed to write to the cache\n  cause: No space left on device (os error 28)"
    with pytest.raises(OSError, match="No space left") as raised:
        installer(tmp_path, f"echo '{said}' >&2; exit 2").make("python", "folder")
    assert raised.value.errno == errno.ENOSPC


def test_uv_gets_no_variable_of_ours_but_the_certificates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "x")
    monkeypatch.setenv("UV_INDEX_URL", "https://user:secret@files.example")
    monkeypatch.setenv("SSL_CERT_FILE", "/ca.pem")
    installer(tmp_path, f"env > {tmp_path}/seen").make("python", "folder")
    seen = dict(line.partition("=")[::2] for line in (tmp_path / "seen").read_text().splitlines())
    assert seen["SSL_CERT_FILE"] == "/ca.pem"
    assert seen["UV_CACHE_DIR"] == str(tmp_path / "cache")
    assert not seen.keys() & {"SECRET", "UV_INDEX_URL"}


def test_settings_with_credentials_go_into_files_of_their_own_and_never_into_arguments(
    tmp_path: Path,
) -> None:
    settings = Settings.parse(
        {
            "config": 'index-url = "https://ada:s3cret@files.example/"\n',
            "variables": {"https_proxy": "http://bo:s3cret@proxy.example"},
            "certificates": "PEM",
        }
    )
    assert "s3cret" not in repr(settings)
    uv = installer(tmp_path, f'env > {tmp_path}/seen; echo "$@" > {tmp_path}/arguments')
    uv = Installer(str(tmp_path / "cache"), print, str(tmp_path / "uv"), settings.environment(str(tmp_path)))
    uv.make("python", "folder")
    seen = dict(line.partition("=")[::2] for line in (tmp_path / "seen").read_text().splitlines())
    assert seen["https_proxy"] == "http://bo:s3cret@proxy.example"
    assert "UV_NO_CONFIG" not in seen
    for variable, text in (("UV_CONFIG_FILE", settings.config), ("SSL_CERT_FILE", "PEM")):
        assert Path(seen[variable]).read_text() == text
        assert stat.S_IMODE(Path(seen[variable]).stat().st_mode) == 0o600
    assert "s3cret" not in (tmp_path / "arguments").read_text()


@pytest.mark.parametrize(
    "found",
    [
        {},
        None,
        {"config": "", "variables": {"PATH": "/x"}, "certificates": ""},
        {"config": "", "variables": {"HTTP_PROXY": 1}, "certificates": ""},
    ],
)
def test_what_is_no_installers_settings_is_refused(found: object) -> None:
    with pytest.raises(ValueError, match="not the settings"):
        Settings.parse(found)


@pytest.mark.parametrize("step", ["resolve", "install"])
def test_wheels_only_when_resolving_and_when_installing(tmp_path: Path, step: str) -> None:
    uv = installer(tmp_path, f'echo "$@" > {tmp_path}/arguments; touch {tmp_path}/lock.txt')
    if step == "resolve":
        uv.resolve("python", ["six"], str(tmp_path))
    else:
        uv.install("python", "six==1", str(tmp_path))
    arguments = (tmp_path / "arguments").read_text().split()
    assert "--no-build" in arguments
    assert "--compile-bytecode" not in arguments, "that would run the environment's Python, and so .pth files"


@pytest.mark.parametrize(
    "said",
    [
        "Because docopt==0.6.2 has no usable wheels and you require docopt==0.6.2",
        "cause: Building source distributions for `x` is disabled",
        "hint: Wheels are required for `srconly` because building from source is disabled for all packages",
    ],
)
def test_what_would_have_to_be_built_is_told_from_other_failures(tmp_path: Path, said: str) -> None:
    uv = installer(tmp_path, f"cat >&2 <<'END'\nerror: {said}\nEND\nexit 1")
    with pytest.raises(NeedsSource, match="error: "):
        uv.resolve("python", ["six"], str(tmp_path))
    with pytest.raises(InstallerFailed) as caught:
        installer(tmp_path, "echo 'error: no such version' >&2; exit 1").resolve(
            "python", ["six"], str(tmp_path)
        )
    assert not isinstance(caught.value, NeedsSource)


def test_a_build_that_makes_no_wheel_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(InstallerFailed, match=r"x-1\.tar\.gz made no wheel"):
        installer(tmp_path, "exit 0").build("python", "/x-1.tar.gz", str(tmp_path / "out"))
