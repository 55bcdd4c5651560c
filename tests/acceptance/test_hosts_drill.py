"""One round of the drill over hosts (`make drill-hosts` plays many), and what its judge finds."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.hosts_drill.drill import HostsDrill
from tests.hosts_drill.script import LOSING, draw
from tests.hosts_drill.witness import LINES, Ended, Expected, complaints
from tests.hosts_in_a_box import require_hosts

#: The agent of one host is killed, then another host is rebooted while jobs run there.
SEED = 2
WHOLE = [f"line {number}" for number in range(1, LINES + 1)]


@pytest.mark.long
def test_jobs_on_hosts_that_are_struck_end_once_and_as_they_should(tmp_path: Path) -> None:
    require_hosts()
    assert {blow.what for blow in draw(SEED, range(3))} & LOSING
    with HostsDrill(tmp_path) as drill:
        verdict = drill.play(SEED)
    assert not verdict.wrong, "\n".join(verdict.wrong)
    assert verdict.attempts >= verdict.jobs > 0


def _attempt(number: int, exit_code: int | None, **more: Any) -> dict[str, Any]:
    marks = {"restored": None, "checkpoint": None, "startedAt": 1}
    return {"number": number, "exitCode": exit_code, **marks, **more}


def _judge(*codes: int | None, status: str = "SUCCEEDED", said: str = "begin j 1,end j 1") -> list[str]:
    attempts = [_attempt(number, code) for number, code in enumerate(codes, 1)]
    logs = [WHOLE[:3] if code is None else WHOLE for code in codes]
    ended = Ended({"status": status}, attempts, logs)
    return complaints(Expected("j", 0), ended, Counter(said.split(",")))


def test_the_judge_accepts_a_job_that_was_lost_with_its_host_and_then_ended() -> None:
    assert _judge(0) == []
    assert _judge(None, 0, said="begin j 1,begin j 2,end j 2") == []
    assert _judge(None, 0, said="begin j 1,end j 1,begin j 2,end j 2") == []


@pytest.mark.parametrize(
    ("codes", "status", "said"),
    [
        ((0,), "FAILED", "begin j 1,end j 1"),
        ((0, 0), "SUCCEEDED", "begin j 1,end j 1,begin j 2,end j 2"),
        ((1, 0), "SUCCEEDED", "begin j 1,end j 1,begin j 2,end j 2"),
        ((None,), "SUCCEEDED", "begin j 1"),
        ((0,), "SUCCEEDED", "begin j 1"),
        ((0,), "SUCCEEDED", "begin j 1,begin j 1,end j 1"),
        ((0,), "SUCCEEDED", "begin j 1,end j 1,end j 1"),
    ],
    ids=["other status", "twice", "failed and again", "never", "no work", "begun twice", "ended twice"],
)
def test_the_judge_finds_a_job_that_ended_otherwise(
    codes: tuple[int | None, ...], status: str, said: str
) -> None:
    assert _judge(*codes, status=status, said=said)


@pytest.mark.parametrize(
    "lines", [WHOLE[:-1], WHOLE[:5] + WHOLE[6:], [*WHOLE, WHOLE[-1]], []], ids=["end", "gap", "twice", "none"]
)
def test_the_judge_finds_a_log_that_is_not_whole(lines: list[str]) -> None:
    ended = Ended({"status": "SUCCEEDED"}, [_attempt(1, 0)], [lines])
    assert complaints(Expected("j", 0), ended, Counter(["begin j 1", "end j 1"]))
    lost = Ended(
        {"status": "SUCCEEDED"}, [_attempt(1, None), _attempt(2, 0)], [[WHOLE[0], WHOLE[2], "l"], WHOLE]
    )
    assert complaints(Expected("j", 0), lost, Counter(["begin j 1", "begin j 2", "end j 2"]))


def test_the_judge_finds_other_bits_and_a_checkpoint_that_did_not_win() -> None:
    said = Counter(["begin j 1", "begin j 2", "end j 2"])
    for restored, printed, right in ((40, "a", True), (40, "b", False), (20, "a", False)):
        attempts = [
            _attempt(1, None, checkpoint={"step": 40}),
            _attempt(2, 0, restored={"step": restored}),
        ]
        ended = Ended({"status": "SUCCEEDED"}, attempts, [[], [f"hash {printed * 64}"]])
        assert (complaints(Expected("j", 0, "a" * 64), ended, said) == []) is right
