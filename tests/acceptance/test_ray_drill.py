"""One round of the drill over Ray; `make drill-ray` plays many."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hosts_in_a_box import require_hosts
from tests.ray_cluster import require_ray
from tests.ray_drill.drill import RayDrill

#: A raylet is killed, then another node is rebooted while jobs run there.
SEED = 22


@pytest.mark.long
def test_jobs_on_ray_nodes_that_are_struck_end_once_and_as_they_should(tmp_path: Path) -> None:
    require_hosts()
    require_ray()
    with RayDrill(tmp_path) as drill:
        assert {blow.what for blow in drill.blows(SEED)} == {"kill raylet", "reboot"}
        verdict = drill.play(SEED)
    assert not verdict.wrong, "\n".join(verdict.wrong)
    assert verdict.attempts >= verdict.jobs > 0
