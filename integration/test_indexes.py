"""Where packages come from: indexes, credentials and proxies of the person's, through the real client and engine."""

import json
from collections.abc import Iterator

import anyio
import pytest

from integration.support.engine import Engine, processes_of
from integration.support.index import PackageIndex, package_index
from integration.support.servers import RunningServer, StartServer, text_of
from integration.support.wheels import bridge_address, wheel

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

USER, PASSWORD = "ada", "s3cretword"


@pytest.fixture
def index(engine: Engine) -> Iterator[PackageIndex]:
    """An index that asks nobody who they are."""
    with package_index(bridge_address(engine.client)) as served:
        yield served


@pytest.fixture
def private(engine: Engine) -> Iterator[PackageIndex]:
    """One that does."""
    with package_index(bridge_address(engine.client), f"{USER}:{PASSWORD}") as served:
        yield served


LOOKS_FOR_CREDENTIALS = """
import alpha, glob, os
found = []
for path in [*glob.glob('/proc/*/environ'), *glob.glob('/proc/*/cmdline'), *glob.glob('/store/**', recursive=True),
             *glob.glob(os.path.dirname(os.path.dirname(alpha.__file__)) + '/**', recursive=True),
             *glob.glob('/tmp/**', recursive=True), *glob.glob('/run/**', recursive=True)]:
    try:
        with open(path, 'rb') as file:
            data = file.read(1 << 20)
    except OSError:
        continue
    if b's3cret' in data or b'ada:' in data:
        found.append(path)
print('FOUND', found, [name for name, value in os.environ.items()
                       if 'INDEX' in name or 'PROXY' in name.upper() and '127.0.0.1' not in value])
"""


async def test_credentials_reach_the_index_and_nobody_else(
    start_server: StartServer, store: str, engine: Engine, private: PackageIndex
) -> None:
    private.add(wheel("alpha", {"alpha.py": ""}))
    private.hanging.add("alpha")
    environment = {"UV_DEFAULT_INDEX": private.url_with_credentials}
    async with start_server(
        "--store", store, "--pool-size", "1", "--log-level", "debug", environment=environment
    ) as server:
        texts: list[str] = []

        async def call() -> None:
            texts.append(text_of(await server.execute(LOOKS_FOR_CREDENTIALS, dependencies=["alpha"])))

        with anyio.fail_after(60):
            async with anyio.create_task_group() as calls:
                calls.start_soon(call)
                while not private.asked:
                    await anyio.sleep(0.05)  # the index lives in threads
                seen = await anyio.to_thread.run_sync(_look_at_containers, engine, server)
                private.released.set()
        missing = text_of(await server.execute("print('never')", dependencies=["beta"]))
        told = json.dumps((await server.client.call_tool("check_environment", {})).model_dump(mode="json"))
        log = server.log.read_text()
    (text,) = texts
    assert "FOUND [] []" in text, text
    assert "There is no package beta" in missing, missing
    assert private.authorizations() - {None}, "it was asked with credentials"
    for where in (text, missing, told, log, seen):
        assert PASSWORD not in where
    assert "build" in seen


def _look_at_containers(engine: Engine, server: RunningServer) -> str:
    """All that the engine tells of the server's containers and their command lines."""
    containers = engine.containers_of(server.pid)
    return json.dumps([engine.client.api.inspect_container(str(one.id)) for one in containers]) + "".join(
        map(processes_of, containers)
    )


async def test_wrong_credentials_are_named_as_the_cause(
    start_server: StartServer, store: str, private: PackageIndex
) -> None:
    private.add(wheel("alpha", {"alpha.py": ""}))
    wrong = private.url_with_credentials.replace(PASSWORD, "wr0ngword")
    async with start_server(
        "--store", store, "--pool-size", "0", environment={"UV_DEFAULT_INDEX": wrong}
    ) as server:
        text = text_of(await server.execute("print('never')", dependencies=["alpha"]))
    assert text.startswith("dependencies failed\nThe script did not start. "), text
    assert "credentials" in text, text
    assert "wr0ng" not in text


async def test_settings_and_a_persons_own_file_name_indexes(
    start_server: StartServer,
    store: str,
    index: PackageIndex,
    private: PackageIndex,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    index.add(wheel("alpha", {"alpha.py": "print('from the index of the setting')"}))
    private.add(wheel("beta", {"beta.py": "print('from the index of the file')"}))
    home = tmp_path_factory.mktemp("home")
    (home / "uv").mkdir()
    (home / "uv" / "uv.toml").write_text(f'[[index]]\nname = "inner"\nurl = "{private.url}"\n')
    environment = {
        "XDG_CONFIG_HOME": str(home),
        "UV_INDEX_INNER_USERNAME": USER,
        "UV_INDEX_INNER_PASSWORD": PASSWORD,
    }
    async with start_server(
        "--store", store, "--pool-size", "1", "--index-url", index.url, environment=environment
    ) as server:
        text = text_of(await server.execute("import alpha, beta", dependencies=["alpha", "beta"]))
    assert "from the index of the setting\nfrom the index of the file" in text, text
    assert index.authorizations() == {None}, "another index's credentials are not for this one"


async def test_packages_come_through_a_proxy_with_its_own_credentials(
    start_server: StartServer, store: str, index: PackageIndex
) -> None:
    index.add(wheel("alpha", {"alpha.py": "print('through the proxy')"}))
    proxy = f"http://bo:pr0xyword@{index.host}:{index.port}"
    async with start_server(
        *("--store", store, "--pool-size", "1", "--index-url", "http://packages.invalid/simple/"),
        environment={"HTTP_PROXY": proxy},
    ) as server:
        text = text_of(await server.execute("import alpha", dependencies=["alpha"]))
        log = server.log.read_text()
    assert "through the proxy" in text, text
    assert {one.headers["Proxy-Authorization"] for one in index.asked} - {None}
    assert "pr0xyword" not in text + log


async def test_nothing_newer_than_the_cutoff_is_installed(start_server: StartServer, store: str) -> None:
    async with start_server("--store", store, "--pool-size", "1", "--exclude-newer", "2019-01-01") as server:
        result = await server.execute("import six; print('six', six.__version__)", dependencies=["six"])
    assert "six 1.12.0" in text_of(result), text_of(result)


FAILURES = {
    "no such package": (["zz"], "There is no package zz in the index"),
    "no such version": (["alpha==9"], "No such version exists (alpha==9)"),
    "a conflict": (["needy", "alpha>=2"], "needy depends on alpha<2, but you ask for alpha>=2"),
    "no build for this Python": (["old"], "old==1.0 has no build for this Python"),
    "an index that is broken": (["broken"], "answered 500 Internal Server Error when asked for broken"),
    "an index that hangs": (["hanging"], "could not be reached (no answer in time)"),
    "an index that isn't there": (["x @ http://{host}:9/x-1.0-py3-none-any.whl"], "could not be reached"),
    "other bytes": (["altered"], "The file of altered==1.0 is not the one"),
    "no package at all": (["nonsense"], "nonsense==1.0 in the index is no valid package"),
}


async def test_each_failure_is_one_sentence_that_names_the_package_and_the_script_does_not_start(
    start_server: StartServer, store: str, index: PackageIndex
) -> None:
    index.add(wheel("alpha", {"alpha.py": ""}))
    index.add(wheel("alpha", {"alpha.py": ""}, "2.0"))
    index.add(wheel("needy", {"needy.py": ""}, requires=["alpha<2"]))
    index.add(("old-1.0-cp27-cp27m-any.whl", wheel("old", {"old.py": ""})[1]))
    index.add(("nonsense-1.0-py3-none-any.whl", b"no zip file"))
    index.add(wheel("altered", {"altered.py": "one"}))
    index.altered["altered"] = wheel("altered", {"altered.py": "other"})[1]
    index.broken.add("broken")
    index.hanging.add("hanging")
    flags = ("--store", store, "--pool-size", "0", "--network", "none", "--index-url", index.url)
    impatient = {"UV_HTTP_TIMEOUT": "2", "UV_HTTP_RETRIES": "0"}
    async with start_server(*flags, environment=impatient) as server:
        texts: dict[str, str] = {}

        async def call(what: str, dependencies: list[str]) -> None:
            named = [one.replace("{host}", index.host) for one in dependencies]
            texts[what] = text_of(await server.execute("print('never')", dependencies=named))

        async with anyio.create_task_group() as calls:
            for what, (dependencies, _) in FAILURES.items():
                calls.start_soon(call, what, dependencies)
    for what, (_, words) in FAILURES.items():
        status, sentence, *_ = texts[what].splitlines()
        assert status == "dependencies failed", texts[what]
        assert sentence.startswith("The script did not start. "), texts[what]
        assert words in sentence, (what, texts[what])
        assert not any(
            noise in texts[what] for noise in ("Resolved", "hint:", "--no-build", "unsatisfiable")
        ), what
