from __future__ import annotations

import pytest

from windfall.checkpoint.tiers import Tier, choose

GIB = 1 << 30


@pytest.mark.parametrize(
    ("free_gib", "held", "guarded", "tier"),
    [
        (40, False, True, Tier.CLONE),
        (12, False, True, Tier.OVERLAP),
        (12, False, False, Tier.WAIT),
        (0, True, False, Tier.CLONE),
        (0, False, True, Tier.OVERLAP),
    ],
)
def test_the_cheapest_safe_tier_is_chosen(free_gib, held, guarded, tier):
    assert choose(10 * GIB, free_gib * GIB, 80 * GIB, has_buffers=held, guarded=guarded) is tier
