"""Interruptions with real processes: who hears of them, how, when, and what is saved by then."""

from __future__ import annotations

import http.client
import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import botocore.utils
import pytest

from tests.acceptance.test_agent import House, is_alive, launched, public_python, sandbox_or_skip
from tests.acceptance.test_staging import (
    FENCE,
    WAITS,
    courier_of,
    in_seconds,
    inside,
    kept,
    ready,
    staged,
    store_of,
)
from tests.waiting import wait_until
from windfall.agent.messages import Interrupt, Progressed, Rebalance, Stop
from windfall.jobs.staging import Output, Staging

LISTENER = """
import json, os, signal, sys, time
def save(*_):
    with open(os.environ["WINDFALL_CHECKPOINT_DIR"] + "/state", "w") as file:
        file.write("saved")
    with open(os.environ["WINDFALL_NOTICE_FILE"]) as file:
        print(file.read(), flush=True)
    sys.exit(143)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
while True:
    time.sleep(0.05)
"""
POLLER = """
import os, sys, time
print("ready", flush=True)
while not os.path.exists(os.environ["WINDFALL_NOTICE_FILE"]):
    time.sleep(0.02)
with open(os.environ["WINDFALL_CHECKPOINT_DIR"] + "/state", "w") as file:
    file.write("polled")
sys.exit(0 if "finish" in sys.argv else 143)
"""


@pytest.fixture(params=["sandbox", "process"])
def house(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[House]:
    with launched(tmp_path / "house", use_sandbox=request.param == "sandbox") as built:
        if request.param == "sandbox":
            sandbox_or_skip(built.daemon())
        yield built


def state_in_store(house: House) -> set[bytes]:
    chunks = house.root / "store" / "job" / ".windfall" / "chunks"
    return {path.read_bytes() for path in chunks.rglob("*") if path.is_file()}


def test_a_wrapper_without_a_trap_lives_until_its_child_has_saved(house: House):
    daemon = house.daemon()
    script = f"{public_python()} -c '{LISTENER}'; code=$?; echo wrapper saw $code; exit $code"
    daemon.send(staged(house, "a", script, kept(house)))
    wait_until(ready(house, "a"), "the handler is set")
    deadline_at = in_seconds(60)
    daemon.send(Interrupt("a", deadline_at, "an on-demand job needs the place"))
    exited = daemon.exited("a")
    assert exited.exit_code == 143
    assert exited.at < deadline_at - 30_000, "nobody waits for the deadline when all have left"
    _, notice, wrapper = house.log("a").splitlines()
    assert wrapper == "wrapper saw 143"
    told = json.loads(notice)
    assert (told["action"], told["deadline_at"], told["why"]) == (
        "terminate",
        deadline_at,
        "an on-demand job needs the place",
    )
    assert told["time"].endswith("Z")
    assert exited.checkpoint is not None
    assert b"saved" in state_in_store(house)


def test_who_does_not_catch_the_signal_may_work_on_and_poll(house: House):
    daemon = house.daemon()
    daemon.send(house.start("a", public_python(), "-c", POLLER, staging=kept(house), fence=FENCE))
    wait_until(ready(house, "a"), "it runs")
    daemon.send(Interrupt("a", in_seconds(60), ""))
    assert daemon.exited("a").exit_code == 143
    assert state_in_store(house) == {b"polled"}


def test_success_within_the_notice_is_success_with_its_outputs(house: House):
    staging = kept(house, outputs=(Output("/opt/ml/model", f"{store_of(house)}/model.tar.gz"),))
    daemon = house.daemon()
    daemon.send(house.start("a", public_python(), "-c", POLLER, "finish", staging=staging, fence=FENCE))
    wait_until(ready(house, "a"), "it runs")
    daemon.send(Interrupt("a", in_seconds(60), ""))
    assert daemon.exited("a").exit_code == 0
    assert (house.root / "store" / "model.tar.gz").exists()


def test_who_ignores_the_notice_is_killed_before_the_deadline_and_saved_by_then(house: House):
    daemon = house.daemon()
    script = 'trap "" TERM; echo x > "$WINDFALL_CHECKPOINT_DIR/state"; ' + WAITS
    daemon.send(staged(house, "a", script, kept(house)))
    wait_until(ready(house, "a"), "the trap is set")
    deadline_at = in_seconds(4)
    daemon.send(Interrupt("a", deadline_at, ""))
    exited = daemon.exited("a")
    assert exited.exit_code == 137
    assert exited.exited_at is not None
    assert exited.exited_at < deadline_at
    assert state_in_store(house) == {b"x\n"}


def test_a_wrapper_does_not_go_on_as_if_its_child_had_finished(house: House):
    daemon = house.daemon()
    tokens = [f"t{n}" for n in range(12)]
    script = "echo ready; sh -c 'trap \"\" TERM; while :; do sleep 0.05; done'; echo went on; exit 0"
    plain_script = "echo ready; sleep 1000; sleep 1000; echo went on; exit 0"
    for number, token in enumerate(tokens):
        daemon.send(house.shell(token, script if number % 2 else plain_script))
    for token in tokens:
        wait_until(ready(house, token), "it runs")
    deadline_at = in_seconds(2)
    daemon.send(*(Interrupt(token, deadline_at, "") for token in tokens))
    for token in tokens:
        assert daemon.exited(token).exit_code in (137, 143), token
        assert "went on" not in house.log(token)


def test_a_second_notice_can_only_take_time_away(house: House):
    daemon = house.daemon()
    daemon.send(staged(house, "a", 'trap "" TERM; ' + WAITS, kept(house)))
    wait_until(ready(house, "a"), "the trap is set")
    notice = inside(house, "a") / ".windfall" / "notice.json"
    daemon.send(Interrupt("a", in_seconds(300), "first"))
    wait_until(notice.exists, "the notice")
    earlier = in_seconds(3)
    daemon.send(Interrupt("a", in_seconds(600), "later"), Interrupt("a", earlier, "earlier"))
    exited = daemon.exited("a")
    assert exited.exit_code == 137
    assert json.loads(notice.read_text())["deadline_at"] == earlier


def test_an_attempt_without_staging_gets_its_signals_too(house: House):
    daemon = house.daemon()
    daemon.send(
        house.shell("polite", "trap 'exit 7' TERM; " + WAITS),
        house.shell("deaf", "trap '' TERM; " + WAITS),
        house.shell("plain", WAITS),
    )
    for token in ("polite", "deaf", "plain"):
        wait_until(ready(house, token), "it runs")
    # Whoever listens leaves long before the deadline, however busy the machine is.
    daemon.send(Interrupt("polite", in_seconds(60), ""))
    daemon.send(*(Interrupt(token, in_seconds(3), "") for token in ("deaf", "plain", "unknown")))
    polite = daemon.exited("polite")
    assert (polite.exit_code, polite.exited_at) == (7, None)
    assert daemon.exited("deaf").exit_code == 137
    # Of so short a notice the last call is a third of a second, which a busy machine may miss.
    assert daemon.exited("plain").exit_code in (137, 143)


def test_a_notice_survives_the_agent(house: House):
    daemon = house.daemon()
    daemon.send(staged(house, "a", 'trap "" TERM; ' + WAITS, kept(house)))
    wait_until(ready(house, "a"), "the trap is set")
    daemon.send(Interrupt("a", in_seconds(5), ""))
    wait_until((inside(house, "a") / ".windfall" / "notice.json").exists, "the notice")
    wait_until(lambda: b'["N",' in (house.root / "agent" / "journal").read_bytes(), "it is on record")
    os.kill(daemon.inventory.agent_pid, signal.SIGKILL)
    daemon.close()
    assert house.daemon().exited("a").exit_code == 137


def test_nobody_is_told_twice_though_the_agent_died(house: House):
    daemon = house.daemon()
    daemon.send(staged(house, "a", "trap 'echo term' TERM; " + WAITS, kept(house)))
    wait_until(ready(house, "a"), "the trap is set")
    daemon.send(Interrupt("a", in_seconds(6), ""))
    wait_until(lambda: "term" in house.log("a"), "the first signal")
    os.kill(daemon.inventory.agent_pid, signal.SIGKILL)
    daemon.close()
    assert house.daemon().exited("a").exit_code == 137
    assert house.log("a").split().count("term") == 2, "one for the notice, one shortly before the end"


def test_a_store_that_is_away_does_not_hold_the_place_beyond_the_deadline(house: House):
    # A path through a file: nothing can be stored below it, now or later.
    (house.root / "store").mkdir()
    daemon = house.daemon()
    script = 'trap "exit 143" TERM; echo x > "$WINDFALL_CHECKPOINT_DIR/state"; ' + WAITS
    daemon.send(staged(house, "a", script, kept(house)))
    wait_until(ready(house, "a"), "it runs")
    courier = courier_of(daemon.inventory.agent_pid)
    assert courier is not None
    os.kill(courier, signal.SIGSTOP)
    try:
        daemon.send(Interrupt("a", in_seconds(2), ""))
        wait_until(
            lambda: b'["D",' in (house.root / "agent" / "journal").read_bytes(), "the process has gone"
        )
    finally:
        (house.root / "store").rename(house.root / "away")
        (house.root / "store").write_text("in the way")
        os.kill(courier, signal.SIGCONT)
    exited = daemon.exited("a")
    assert exited.exit_code == 143
    alarms = [m.alarm for m in daemon.heard if isinstance(m, Progressed) and m.alarm]
    assert alarms, "somebody must hear that it was not stored"


# --- metadata ---------------------------------------------------------------------------------------


def get(url: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    request = urllib.request.Request(
        url, method=method, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def endpoint_of(house: House, token: str) -> str:
    return next(line for line in house.log(token).splitlines() if line.startswith("http://"))


def test_metadata_tell_of_the_instance_of_rebalance_and_of_the_notice(house: House):
    daemon = house.daemon()
    script = "echo $AWS_EC2_METADATA_SERVICE_ENDPOINT; trap '' TERM; " + WAITS
    facts = {"instance": "i-0123456789abcdef0", "instance_type": "g5.xlarge", "market": "spot"}
    daemon.send(staged(house, "a", script, kept(house), **facts))
    wait_until(ready(house, "a"), "it runs")
    latest = endpoint_of(house, "a") + "latest/"
    assert get(latest + "meta-data/instance-id") == (200, "i-0123456789abcdef0")
    assert get(latest + "meta-data/instance-type") == (200, "g5.xlarge")
    assert get(latest + "meta-data/instance-life-cycle") == (200, "spot")
    assert get(latest + "meta-data/spot/instance-action")[0] == 404
    assert get(latest + "meta-data/events/recommendations/rebalance")[0] == 404
    daemon.send(Rebalance("a", 1_603_786_920_000))
    wait_until(
        lambda: get(latest + "meta-data/events/recommendations/rebalance")[0] == 200, "the recommendation"
    )
    rebalance = json.loads(get(latest + "meta-data/events/recommendations/rebalance")[1])
    assert rebalance == {"noticeTime": "2020-10-27T08:22:00Z"}
    status, token = get(latest + "api/token", "PUT", X_aws_ec2_metadata_token_ttl_seconds="60")
    assert status == 200
    daemon.send(Interrupt("a", 4_102_444_800_000, ""))
    wait_until(lambda: get(latest + "meta-data/spot/termination-time")[0] == 200, "the notice")
    action = get(latest + "meta-data/spot/instance-action", X_aws_ec2_metadata_token=token)
    assert (action[0], json.loads(action[1])) == (
        200,
        {"action": "terminate", "time": "2100-01-01T00:00:00Z"},
    )
    assert get(latest + "meta-data/spot/termination-time") == (200, "2100-01-01T00:00:00Z")
    assert get(latest + "meta-data/spot/instance-action", X_aws_ec2_metadata_token="made-up")[0] == 401
    daemon.send(Stop("a", 0.0))
    daemon.exited("a")
    wait_until(
        lambda: not answers(latest + "meta-data/instance-id", "i-0123456789abcdef0"), "the port is closed"
    )


def test_metadata_are_at_the_same_port_after_the_courier_and_the_agent_have_died(house: House):
    daemon = house.daemon()
    daemon.send(
        staged(house, "a", "echo $AWS_EC2_METADATA_SERVICE_ENDPOINT; " + WAITS, kept(house), instance="i-1")
    )
    wait_until(ready(house, "a"), "it runs")
    url = endpoint_of(house, "a") + "latest/meta-data/instance-id"
    courier = courier_of(daemon.inventory.agent_pid)
    assert courier is not None
    for victim in (courier, daemon.inventory.agent_pid):
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: answers(url), "the metadata are back")
    (status,) = house.daemon().inventory.attempts
    assert status.pid is not None
    assert is_alive(status.pid)


def answers(url: str, body: str = "i-1") -> bool:
    try:
        return get(url) == (200, body)
    except (OSError, http.client.HTTPException):
        return False


def test_botocore_uses_the_metadata_as_it_uses_ec2s(house: House, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    daemon = house.daemon()
    daemon.send(
        staged(house, "a", "echo $AWS_EC2_METADATA_SERVICE_ENDPOINT; " + WAITS, kept(house), instance="i-1")
    )
    wait_until(ready(house, "a"), "it runs")
    url = endpoint_of(house, "a")
    region = botocore.utils.InstanceMetadataRegionFetcher(timeout=60, base_url=url).retrieve_region()
    assert region == "us-east-1"
    fetcher = botocore.utils.IMDSFetcher(timeout=60, base_url=url)
    token = fetcher._fetch_metadata_token()
    assert token
    response = fetcher._get_request("latest/meta-data/instance-id", None, token)
    assert (response.status_code, response.text) == (200, "i-1")
    roles = botocore.utils.InstanceMetadataFetcher(timeout=60, base_url=url).retrieve_iam_role_credentials()
    assert roles == {}, "there is no role, and no error either"


# --- progress ---------------------------------------------------------------------------------------


def test_what_a_job_says_of_itself_is_passed_on(house: House):
    daemon = house.daemon()
    report = '{"at": 1, "step": 5, "first_step_at": 2, "loss": 0.5, "stall_s": 0.25, "unknown": true}'
    script = (
        f"echo '{report}' > $WINDFALL_PROGRESS_FILE.new; mv $WINDFALL_PROGRESS_FILE.new $WINDFALL_PROGRESS_FILE; "
        + WAITS
    )
    daemon.send(staged(house, "a", script, Staging()))
    news = daemon.until(lambda m: isinstance(m, Progressed) and m.progress is not None)
    assert isinstance(news, Progressed)
    assert news.progress is not None
    assert (news.progress.step, news.progress.loss, news.progress.stall_s) == (5, 0.5, 0.25)
    late = house.daemon(epoch=2)
    repeated = late.until(lambda m: isinstance(m, Progressed) and m.progress is not None)
    assert isinstance(repeated, Progressed)
    assert repeated.progress == news.progress, "a daemon that comes later hears it too"
    late.send(Stop("a", 0.0))
    exited = late.exited("a")
    assert exited.progress == news.progress


#: Saves one whole state, then never finishes writing the next one over it. Has no handler for anything.
WRITES_IN_PLACE = """
import os, time
place = os.environ["WINDFALL_CHECKPOINT_DIR"] + "/state"
if os.path.exists(place):
    print("found", open(place).read(), flush=True)
    raise SystemExit(0)
with open(place, "w") as file:
    file.write("whole")
print("ready", flush=True)
while not os.path.exists(os.environ["WINDFALL_NOTICE_FILE"]):
    time.sleep(0.02)
with open(place, "w") as file:
    while True:
        file.write("x")
        file.flush()
        time.sleep(0.02)
"""


def test_a_program_that_dies_in_the_middle_of_writing_keeps_its_last_whole_state(house: House):
    daemon = house.daemon()
    program = (public_python(), "-c", WRITES_IN_PLACE)
    daemon.send(house.start("one", *program, staging=kept(house), fence=FENCE))
    wait_until(ready(house, "one"), "the first state is written")
    wait_until(lambda: b"whole" in state_in_store(house), "the first state has been read")
    daemon.send(Interrupt("one", in_seconds(4), ""))
    assert daemon.exited("one").exit_code in (137, 143)
    daemon.send(house.start("two", *program, staging=kept(house), fence=FENCE + 1))
    assert daemon.exited("two").exit_code == 0
    assert house.log("two") == "found whole\n"
