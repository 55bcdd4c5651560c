"""A job's own numbers: found in JSON lines and by patterns, bounded, each line once, and no pattern can hold us up."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.builders import a_busy_world, a_job
from windfall.agent.attempt_files import AttemptDirectory
from windfall.daemon import page_metrics
from windfall.daemon.curve_scan import of_json_lines, thinned
from windfall.daemon.event_files import EventCurves
from windfall.daemon.page_metrics import POINTS_MAX, Curves, _answer, patterns_of
from windfall.jobs.job import JobKind
from windfall.jobs.staging import Mark, Progress


class Place:
    """An attempt that has ended, whose log a test writes."""

    def __init__(self, root):
        self.world = a_busy_world().submits(a_job("a")).starts("a").exits("a")
        self.attempt = self.world.job("a").attempts[-1]
        self.path = root / f"{self.attempt.task_id}.log"
        self.curves = Curves(AttemptDirectory(root))

    def look(self, *patterns):
        answer = _answer(self.attempt, self.curves.of(self.attempt, patterns, self.world.now), EventCurves())
        return {(it["name"], it["source"]): it for it in answer["series"]}


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def test_json_lines_become_curves_with_their_steps(place):
    lines = [json.dumps({"step": n, "loss": 1 / (n + 1), "phase": "train", "ok": True}) for n in range(50)]
    place.path.write_text("hello\n" + "\n".join(lines) + '\n{"broken\n{"loss": NaN}\n[1]\n')
    series = place.look()
    assert list(series) == [("loss", "json line")]
    curve = series["loss", "json line"]
    assert [(step, value) for _, step, value in curve["points"][:2]] == [(0, 1.0), (1, 0.5)]
    assert (curve["last"], curve["max"]) == (1 / 50, 1.0)


def test_patterns_of_a_training_job_become_curves_and_each_line_counts_once(place):
    pattern = ("loss", r"loss=([0-9.]+)")
    place.path.write_text("loss=3.0\nloss=2.0\nloss=\n")
    assert [it[2] for it in place.look(pattern)["loss", "log regex"]["points"]] == [3.0, 2.0]
    with place.path.open("a") as file:
        file.write("loss=1.0\n")
    assert [it[2] for it in place.look(pattern)["loss", "log regex"]["points"]] == [3.0, 2.0, 1.0]


def test_curves_are_bounded_and_the_last_value_is_always_there(place):
    place.path.write_text("".join(f"loss={n}\n" for n in range(5_000)))
    curve = place.look(("loss", r"loss=([0-9.]+)"))["loss", "log regex"]
    assert len(curve["points"]) <= POINTS_MAX
    assert curve["last"] == 4_999
    names = {f"m{n}": 1 for n in range(100)}
    assert len(of_json_lines(json.dumps(names).encode(), 1 << 14)) == 20
    assert thinned([[n, None, n] for n in range(10)], 3)[-1] == [9, None, 9]


def test_a_pattern_that_never_ends_is_ended(place, monkeypatch):
    monkeypatch.setattr(page_metrics, "PATTERN_S", 0.05)
    place.path.write_text("a" * 200 + "!\n" + '{"loss": 1}\n')
    assert list(place.look(("x", r"(a+)+$"))) == [("loss", "json line")]


def test_only_the_end_of_a_long_log_is_read_and_the_answer_says_from_where(place, monkeypatch):
    monkeypatch.setattr(page_metrics, "SCAN_BYTES", 1_000)
    place.path.write_text("x\n" * 10_000 + '{"loss": 1}\n')
    answer = _answer(place.attempt, place.curves.of(place.attempt, (), place.world.now), EventCurves())
    assert answer["fromByte"] == place.path.stat().st_size - 1_000
    assert answer["series"][0]["last"] == 1


def test_checkpoints_tell_steps_and_losses(place):
    place.attempt.marks = (Mark("a", 20, 10, 1, 5), Mark("b", 40, 30, 1, 9))
    place.attempt.progress = Progress(50, step=11, loss=0.5)
    place.attempt.losses = ((10, 5, 2.0), (30, 9, 1.0))
    series = place.look()
    assert series["step", "windfall.checkpoint"]["points"] == [[10, 5, 5], [30, 9, 9], [50, 11, 11]]
    assert series["loss", "windfall.checkpoint"]["points"] == [[10, 5, 2.0], [30, 9, 1.0], [50, 11, 0.5]]


def test_a_batch_job_has_no_patterns():
    job = a_busy_world().submits(a_job("a")).job("a")
    assert patterns_of(job) == []
    metrics = {"AlgorithmSpecification": {"MetricDefinitions": [{"Name": "loss", "Regex": "l=(.)"}]}}
    training = replace(
        job,
        submission=replace(job.submission, kind=JobKind.TRAINING, document=json.dumps({"request": metrics})),
    )
    assert patterns_of(training) == [("loss", "l=(.)")]
