"""The fake driver shows what any driver must, so that tests which stand on it stand on something."""

import pytest

from tests.support.conformance import FAKE_DIFFERENCES, Behaviour, observe, scenes, shown_by
from tests.support.fake_driver import FakeDriver

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "behaviour", shown_by(FAKE_DIFFERENCES), ids=lambda behaviour: f"fake: {behaviour.name}"
)
async def test_the_fake_driver_shows(behaviour: Behaviour) -> None:
    async with FakeDriver(scenes()) as driver:
        behaviour.expect(await observe(driver, behaviour))


@pytest.mark.parametrize("behaviour", shown_by(FAKE_DIFFERENCES), ids=lambda behaviour: behaviour.name)
async def test_an_expectation_fails_on_another_outcome(behaviour: Behaviour) -> None:
    """No behaviour is so lax that a script which does something else would pass for it."""
    from tests.support.fake_driver import play

    async with FakeDriver(dict.fromkeys(scenes(), play(b"something else", code=77))) as driver:
        outcome = await observe(driver, behaviour)
        with pytest.raises(AssertionError):
            behaviour.expect(outcome)
