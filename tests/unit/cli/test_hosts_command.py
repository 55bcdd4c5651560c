"""What `windfall hosts remove` asks of the daemon for several hosts, and what it says."""

from __future__ import annotations

import json

from tests.unit.cli.fake_daemon import Error


def test_several_hosts_are_removed_and_one_that_is_busy_stops_no_other(daemon, windfall):
    def remove(params):
        if params["name"] == "gpu2":
            return Error("Conflict", "2 jobs run on gpu2", 409)
        return {"name": params["name"], "left": "logs" if params["name"] == "gpu3" else ""}

    daemon.answers["RemoveHost"] = remove
    ran = windfall("hosts", "remove", "gpu1", "gpu2", "gpu3", "gpu1")
    assert (ran.code, ran.out) == (1, "gpu1 is removed\ngpu3 is removed\n")
    assert "something is left on gpu3: logs" in ran.err
    assert "gpu2 was not removed: 2 jobs run on gpu2" in ran.err
    answer = json.loads(windfall("hosts", "remove", "gpu1", "gpu2", "--json").out)
    assert [host["name"] for host in answer["removed"]] == ["gpu1"]
    assert "2 jobs run" in answer["failed"]["gpu2"]
    assert json.loads(windfall("hosts", "remove", "gpu1", "--json").out) == {"name": "gpu1", "left": ""}


def test_all_hosts_are_drained_before_the_first_is_removed(daemon, windfall):
    daemon.answers["DrainHost"] = {"running": 0}
    daemon.answers["RemoveHost"] = {"name": "gpu1", "left": ""}
    assert windfall("hosts", "remove", "gpu1", "gpu2", "--drain").code == 0
    assert [params["name"] for params in daemon.params_of("DrainHost")] == ["gpu1", "gpu2"]
