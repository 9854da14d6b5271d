"""What is allowed of pools of which nobody has set anything."""

import pytest

from serve.app.pools import usual_pools
from serve.control.scaling.pools import PoolSettings
from serve.settings import Settings


@pytest.mark.parametrize(
    ("autoscale", "usual"),
    [
        ("", {}),
        ("1..4", {"default": PoolSettings(1, 4)}),
        ("0..2", {"default": PoolSettings(1, 2, to_zero=True)}),
    ],
)
def test_the_pool_of_local_tritons_has_the_range_that_they_scale_in(
    autoscale: str, usual: dict[str, PoolSettings]
) -> None:
    assert usual_pools(Settings(autoscale=autoscale)) == usual
