import anyio
import pytest

from python_exec_sandbox.environments import store as store_module
from python_exec_sandbox.environments.indexes import Index, Indexes
from python_exec_sandbox.environments.records import Environment
from python_exec_sandbox.environments.store import EnvironmentStore
from python_exec_sandbox.errors import ConfigurationError, CreateFailed, DriverError
from python_exec_sandbox.model.environment import BuildFailed, BuildFault, Package, Resolved, Task, Trimmed
from tests.support.fake_builder import Build, FakeBuilder, built

pytestmark = pytest.mark.anyio

BOUND = 5.0
SIX = ("six",)


def silent(words: str) -> None: ...


async def obtain(
    store: EnvironmentStore, requirements: tuple[str, ...] = SIX, python: str = "3.13"
) -> Environment:
    found = await store.obtain(python, requirements, 60.0, silent)
    assert isinstance(found, Environment)
    return found


async def until_waiting(store: EnvironmentStore, count: int) -> None:
    """Return once so many wait for the one build."""
    while sum(len(flight.listeners) for flight in store._flights.values()) < count:
        await anyio.lowlevel.checkpoint()


async def test_the_second_run_gets_what_the_first_one_had_built() -> None:
    builder = FakeBuilder(Build(built(7)))
    with anyio.fail_after(BOUND):
        async with EnvironmentStore(builder, 3600.0) as store:
            first, second = await obtain(store), await obtain(store)
    assert (first.path, first.reused) == (built(7).path, False)
    assert (second.path, second.reused, second.seconds) == (built(7).path, True, 0.0)
    assert len(builder.requests) == 1


async def test_the_builder_is_asked_for_what_was_wanted_within_its_limits() -> None:
    builder = FakeBuilder()
    with anyio.fail_after(BOUND):
        async with EnvironmentStore(builder, 77.0) as store:
            await store.obtain("3.14", ("b", "a", "b"), 33.0, silent)
    (request,) = builder.requests
    assert (request.python, request.requirements) == ("3.14", ("a", "b"))
    assert (request.resolution_seconds, request.install_seconds) == (77.0, 33.0)


async def test_a_builder_learns_what_runs_got_without_it_and_how_large_the_store_may_be() -> None:
    builder = FakeBuilder(Build(built(1)))
    with anyio.fail_after(BOUND):
        async with EnvironmentStore(builder, 77.0, store_bytes=88) as store:
            await obtain(store)
            await obtain(store)
            await obtain(store, ("other",))
            await obtain(store, ("another",))
    assert [request.store_bytes for request in builder.requests] == [88] * 3
    (path, ago), *more = builder.requests[1].used
    assert (path, more) == (built(1).path, [])
    assert 0 <= ago < BOUND
    assert builder.requests[2].used == ()


async def test_versions_are_told_without_building_anything() -> None:
    found = Resolved((Package("six", "1.17.0"),))
    failed = BuildFailed(BuildFault.INSTALLER, "no such thing")
    builder = FakeBuilder(Build(found, words=("resolving",)), Build(failed))
    words: list[str] = []
    with anyio.fail_after(BOUND):
        async with EnvironmentStore(builder, 77.0) as store:
            assert await store.resolve("3.14", ("b", "a"), 33.0, words.append) == found
            assert await store.resolve("3.14", ("b", "a"), 33.0, words.append) == failed
    request = builder.requests[0]
    assert (request.task, request.python, request.requirements) == (Task.RESOLVE, "3.14", ("a", "b"))
    assert (request.resolution_seconds, request.install_seconds) == (77.0, 33.0)
    assert words == ["resolving"]


async def test_an_answer_to_another_question_is_an_error() -> None:
    builder = FakeBuilder(Build(Trimmed(1)), Build(built(1)))
    with anyio.fail_after(BOUND):
        async with EnvironmentStore(builder, 77.0) as store:
            with pytest.raises(DriverError, match="something else"):
                await obtain(store)
            with pytest.raises(DriverError, match="something else"):
                await store.resolve("3.13", SIX, 60.0, silent)


@pytest.mark.parametrize(("requirements", "python"), [(("six", "attrs"), "3.13"), (SIX, "3.14")])
async def test_other_packages_or_another_python_are_another_environment(
    requirements: tuple[str, ...], python: str
) -> None:
    builder = FakeBuilder()
    with anyio.fail_after(BOUND):
        async with EnvironmentStore(builder, 3600.0) as store:
            assert (await obtain(store)).path != (await obtain(store, requirements, python)).path


async def test_eight_cold_calls_at_once_make_one_build() -> None:
    build = Build(gate=anyio.Event())
    builder = FakeBuilder(build)
    paths: list[str] = []
    with anyio.fail_after(BOUND):
        async with EnvironmentStore(builder, 3600.0) as store, anyio.create_task_group() as calls:

            async def call() -> None:
                paths.append((await obtain(store)).path)

            for _ in range(8):
                calls.start_soon(call)
            await until_waiting(store, 8)
            assert build.gate is not None
            build.gate.set()
    assert paths == [built().path] * 8
    assert len(builder.requests) == 1


async def test_cancelling_one_waiter_leaves_the_build_to_the_others() -> None:
    build = Build(gate=anyio.Event())
    with anyio.fail_after(BOUND):
        async with EnvironmentStore(FakeBuilder(build), 3600.0) as store, anyio.create_task_group() as calls:
            impatient = anyio.CancelScope()
            paths: list[str] = []

            async def give_up() -> None:
                with impatient:
                    await obtain(store)

            async def wait() -> None:
                paths.append((await obtain(store)).path)

            calls.start_soon(give_up)
            calls.start_soon(wait)
            await until_waiting(store, 2)
            impatient.cancel()
            await until_waiting(store, 1)
            assert not build.cancelled
            assert build.gate is not None
            build.gate.set()
    assert paths == [built().path]


async def test_the_last_waiters_cancellation_ends_the_build_and_the_next_call_begins_anew() -> None:
    build = Build(gate=anyio.Event())
    builder = FakeBuilder(build, Build(built(2)))
    with anyio.fail_after(BOUND):
        async with EnvironmentStore(builder, 3600.0) as store:
            async with anyio.create_task_group() as calls:
                for _ in range(3):
                    calls.start_soon(obtain, store)
                await until_waiting(store, 3)
                await build.began.wait()
                calls.cancel_scope.cancel()
            assert (await obtain(store)).path == built(2).path
            await build.cleaned.wait()
    assert build.cancelled
    assert builder.running == 0


@pytest.mark.parametrize("steps", range(6))
async def test_cancelled_at_any_step_nothing_is_left_and_the_next_call_works(steps: int) -> None:
    builder = FakeBuilder()
    with anyio.fail_after(BOUND):
        async with EnvironmentStore(builder, 3600.0) as store:
            async with anyio.create_task_group() as calls:
                calls.start_soon(obtain, store)
                for _ in range(steps):
                    await anyio.lowlevel.checkpoint()
                calls.cancel_scope.cancel()
            assert isinstance(await obtain(store), Environment)
            assert store._flights == {}
    assert builder.running == 0


async def test_a_failure_reaches_all_who_wait_and_is_not_remembered() -> None:
    failed = BuildFailed(BuildFault.INSTALLER, "no such thing")
    build = Build(failed, gate=anyio.Event())
    outcomes: list[object] = []
    with anyio.fail_after(BOUND):
        async with EnvironmentStore(FakeBuilder(build, Build(built(2))), 3600.0) as store:
            async with anyio.create_task_group() as calls:

                async def call() -> None:
                    outcomes.append(await store.obtain("3.13", SIX, 60.0, silent))

                for _ in range(2):
                    calls.start_soon(call)
                await until_waiting(store, 2)
                assert build.gate is not None
                build.gate.set()
            assert outcomes == [failed, failed]
            assert (await obtain(store)).path == built(2).path


async def test_an_engine_that_fails_is_an_error_of_the_same_kind_for_each_waiter() -> None:
    with anyio.fail_after(BOUND):
        async with EnvironmentStore(FakeBuilder(Build(CreateFailed("the engine is full"))), 3600.0) as store:
            with pytest.raises(CreateFailed, match="the engine is full"):
                await obtain(store)
            assert (await obtain(store)).path


async def test_a_fault_of_the_builder_reaches_its_waiters_and_the_store_goes_on() -> None:
    with anyio.fail_after(BOUND):
        async with EnvironmentStore(FakeBuilder(Build(ZeroDivisionError("oops"))), 3600.0) as store:
            with pytest.raises(DriverError, match="oops"):
                await obtain(store)
            assert (await obtain(store)).path


async def test_open_versions_are_asked_for_again_when_they_are_no_longer_fresh() -> None:
    builder = FakeBuilder(Build(built(1, fresh_seconds=0.0)), Build(built(2, reused=True)))
    with anyio.fail_after(BOUND):
        async with EnvironmentStore(builder, 3600.0) as store:
            await obtain(store)
            again = await obtain(store)
    assert (again.path, again.reused) == (built(2).path, True)


async def test_what_has_gone_is_asked_for_again() -> None:
    builder = FakeBuilder(Build(built(1)), Build(built(2)))
    with anyio.fail_after(BOUND):
        async with EnvironmentStore(builder, 3600.0) as store:
            store.forget((await obtain(store)).path)
            assert (await obtain(store)).path == built(2).path


async def test_whoever_waits_hears_what_the_builder_is_at_even_if_late() -> None:
    build = Build(gate=anyio.Event(), words=("resolving", "downloading six"))
    heard: dict[str, list[str]] = {"first": [], "late": []}
    with anyio.fail_after(BOUND):
        async with EnvironmentStore(FakeBuilder(build), 3600.0) as store, anyio.create_task_group() as calls:
            calls.start_soon(store.obtain, "3.13", SIX, 60.0, heard["first"].append)
            await build.began.wait()
            calls.start_soon(store.obtain, "3.13", SIX, 60.0, heard["late"].append)
            await until_waiting(store, 2)
            assert build.gate is not None
            build.gate.set()
    assert heard == {"first": ["resolving", "downloading six"], "late": ["downloading six"]}


async def test_no_more_builds_run_at_once_than_the_machine_bears() -> None:
    builds = [Build(built(number), gate=anyio.Event()) for number in range(4)]
    builder = FakeBuilder(*builds)
    with anyio.fail_after(BOUND):
        async with EnvironmentStore(builder, 3600.0) as store, anyio.create_task_group() as calls:
            for number in range(4):
                calls.start_soon(obtain, store, (f"package-{number}",))
            await until_waiting(store, 4)
            for build in builds[: store_module.BUILDS_AT_ONCE]:
                await build.began.wait()
            for build in builds:
                await build.began.wait()
                assert build.gate is not None
                build.gate.set()
    assert builder.most_running == store_module.BUILDS_AT_ONCE


async def test_only_so_many_environments_are_kept_in_mind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "KNOWN_ENVIRONMENTS", 2)
    builder = FakeBuilder()
    with anyio.fail_after(BOUND):
        async with EnvironmentStore(builder, 3600.0) as store:
            for name in ("a", "b", "a", "c", "a", "b"):
                await obtain(store, (name,))
    assert [request.requirements for request in builder.requests] == [("a",), ("b",), ("c",), ("b",)]


async def test_closing_the_store_ends_what_is_being_built() -> None:
    build = Build(gate=anyio.Event())
    raised: list[DriverError] = []

    async def call(store: EnvironmentStore) -> None:
        try:
            await obtain(store)
        except DriverError as error:
            raised.append(error)

    with anyio.fail_after(BOUND):
        async with (
            anyio.create_task_group() as calls,
            EnvironmentStore(FakeBuilder(build), 3600.0) as store,
        ):
            calls.start_soon(call, store)
            await build.began.wait()
    assert build.cancelled
    assert "closing" in str(raised[0])


SECRET = "https://ada:s3cretword@packages.example/simple/"


async def test_a_build_gets_the_indexes_of_now_and_says_nothing_of_their_credentials() -> None:
    builder = FakeBuilder(
        Build(
            BuildFailed(BuildFault.INSTALLER, f"error: {SECRET} said no to s3cretword"),
            words=(f"asking {SECRET}",),
        )
    )
    words: list[str] = []
    found = [Indexes(), Indexes((Index(SECRET),))]
    with anyio.fail_after(BOUND):
        async with EnvironmentStore(builder, 3600.0, found.pop) as store:
            outcome = await store.obtain("3.13", SIX, 60.0, words.append)
            await obtain(store, ("other",))
    assert isinstance(outcome, BuildFailed)
    assert "said no" in outcome.text
    assert words
    assert "s3cret" not in outcome.text + "".join(words)
    assert [SECRET in request.installer.config for request in builder.requests] == [True, False]


async def test_settings_of_uv_that_cannot_be_understood_are_an_error_of_the_call_alone() -> None:
    def read() -> Indexes:
        if not broken:
            return Indexes()
        raise ConfigurationError(broken.pop())

    broken = ["uv's settings file is not valid TOML"]
    with anyio.fail_after(BOUND):
        async with EnvironmentStore(FakeBuilder(), 3600.0, read) as store:
            with pytest.raises(ConfigurationError, match="not valid TOML"):
                await store.obtain("3.13", SIX, 60.0, silent)
            await obtain(store)


async def test_what_cannot_be_followed_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    with anyio.fail_after(BOUND):
        async with EnvironmentStore(
            FakeBuilder(), 3600.0, lambda: Indexes(notes=(f"not {SECRET}",))
        ) as store:
            await obtain(store)
            await obtain(store, ("other",))
    assert [record.getMessage() for record in caplog.records] == ["not https://****@packages.example/simple/"]


NEEDS_SOURCE = BuildFailed(BuildFault.NEEDS_SOURCE, "error: no usable wheels")


async def test_what_has_no_wheel_is_built_without_credentials_in_what_is_left_of_the_time() -> None:
    builder = FakeBuilder(Build(NEEDS_SOURCE), Build(built(7)))
    indexes = Indexes(
        (Index(SECRET),),
        proxies=(
            ("HTTPS_PROXY", "http://ada:s3cretword@proxy.example"),
            ("HTTP_PROXY", "http://proxy.example"),
        ),
    )
    words: list[str] = []
    with anyio.fail_after(BOUND):
        async with EnvironmentStore(builder, 3600.0, lambda: indexes) as store:
            found = await store.obtain("3.13", SIX, 60.0, words.append)
            assert (await obtain(store)).reused
    assert isinstance(found, Environment)
    assert found.path == built(7).path
    assert words == ["building from source, in a sandbox of its own"]
    first, second = builder.requests
    assert first.source is None
    assert second.source is not None
    assert "s3cret" not in second.source.config + str(second.source.variables)
    assert "https://packages.example/simple/" in second.source.config
    assert dict(second.source.variables) == {"HTTP_PROXY": "http://proxy.example"}
    assert second.installer == first.installer
    assert 0 < second.install_seconds <= 60.0


async def test_a_driver_without_a_place_for_builds_leaves_it_at_what_the_builder_said() -> None:
    builder = FakeBuilder(Build(NEEDS_SOURCE), Build(BuildFailed(BuildFault.NEEDS_SOURCE)))
    with anyio.fail_after(BOUND):
        async with EnvironmentStore(builder, 3600.0) as store:
            assert await store.obtain("3.13", SIX, 60.0, silent) == NEEDS_SOURCE


async def test_source_builds_can_be_off() -> None:
    builder = FakeBuilder(Build(NEEDS_SOURCE))
    with anyio.fail_after(BOUND):
        async with EnvironmentStore(builder, 3600.0, source_builds=False) as store:
            assert await store.obtain("3.13", SIX, 60.0, silent) == NEEDS_SOURCE
    assert len(builder.requests) == 1


async def test_a_scripts_cutoff_is_another_environment_and_the_older_one_counts() -> None:
    builder = FakeBuilder(Build(built(1)), Build(built(2)), Build(built(3)))
    with anyio.fail_after(BOUND):
        async with EnvironmentStore(builder, 3600.0, lambda: Indexes(exclude_newer="2022-01-01")) as store:
            for cutoff in ("", "2020-01-01", "2024-01-01", "2020-01-01"):
                await store.obtain("3.13", SIX, 60.0, silent, cutoff)
    asked = [request.installer.config for request in builder.requests]
    assert asked == [f'exclude-newer = "{year}-01-01"\n' for year in (2022, 2020, 2022)]
