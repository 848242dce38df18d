from hypothesis import Phase, settings

from tests.pool.machine import PoolLife

TestPoolLife = PoolLife.TestCase
# Without the phase that explains a failure: it traces every line and takes minutes where the rest takes seconds.
TestPoolLife.settings = settings(
    stateful_step_count=40, phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink]
)
