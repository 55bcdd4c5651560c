"""Which ends wait a moment for news of the GPU."""

from __future__ import annotations

from tests.unit.agent.stories import attempt_of
from windfall.agent.attempt import Attempt
from windfall.agent.devices.suspects import SuspectEnds
from windfall.agent.messages import Devices, Exited, Started
from windfall.agent.records import Intended
from windfall.agent.stages import Story


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def an_attempt(token: str, *gpu_ids: str) -> Attempt:
    intended = Intended(token, "task", "/log", [], 1, 1, sandboxed=False, at=1, gpu_ids=list(gpu_ids))
    return attempt_of(Story(intended))


def an_end(token: str, code: int) -> Exited:
    return Exited(token, code, None, 1, 2, "process")


ATTEMPTS = {"gpu": an_attempt("gpu", "GPU-a"), "cpu": an_attempt("cpu")}


def test_only_the_failed_end_of_a_gpu_program_waits():
    clock = Clock()
    suspects = SuspectEnds(ATTEMPTS, 0.3, clock)
    others = [Started("gpu", 1, 1, "process"), an_end("cpu", 1), an_end("gpu", 0), an_end("unknown", 1)]
    failed = an_end("gpu", 139)
    assert suspects.sift([failed, *others]) == others
    assert suspects.next_due is not None
    news = Devices([])
    assert suspects.sift([news]) == [news], "news of the device overtakes it"
    clock.now = suspects.next_due
    assert suspects.sift([]) == [failed]
    assert suspects.next_due is None


def test_one_that_was_asked_to_stop_and_one_at_the_end_of_the_agent_do_not_wait():
    asked = an_attempt("asked", "GPU-a")
    asked.grace_s = 30.0
    suspects = SuspectEnds({**ATTEMPTS, "asked": asked}, 0.3)
    assert suspects.sift([an_end("asked", 143)]) == [an_end("asked", 143)]
    assert suspects.sift([an_end("gpu", 1)]) == []
    assert suspects.sift([an_end("gpu", 2)], all_now=True) == [an_end("gpu", 2), an_end("gpu", 1)]


def test_where_devices_never_change_nothing_waits():
    assert SuspectEnds(ATTEMPTS, 0.0).sift([an_end("gpu", 1)]) == [an_end("gpu", 1)]
