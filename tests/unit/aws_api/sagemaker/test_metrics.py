"""Metrics from a job's log, found by a real process, and patterns that would never end."""

from __future__ import annotations

import asyncio
import struct

import pytest

from tests.unit.aws_api.sagemaker.world import IMAGE, NOW, a_training_job, an_attempt
from windfall.agent.attempt_files import AttemptDirectory
from windfall.aws_api.sagemaker.metrics import FinalMetrics
from windfall.jobs.states import SUCCEEDED

LOSS = ("loss", r"loss=([0-9.eE+-]+|nan);")
ERROR = ("error", "Train_error=(.*?);")
EVIL = ("evil", r"^((?:[a1]+)+)$")
LATER = NOW + 600_000


@pytest.fixture
def logs(tmp_path):
    return tmp_path


def write(logs, attempt, text, at=NOW + 5000):
    path = logs / f"{attempt.task_id}.log"
    with path.open("a") as file:
        file.write(text)
    with (logs / f"{attempt.task_id}.log.times").open("ab") as file:
        file.write(struct.pack("<QQ", path.stat().st_size, at))


def values(metrics, attempts, *patterns, now=LATER):
    found = asyncio.run(metrics.of(attempts, patterns, now))
    return {it.name: it.value for it in found}


def test_the_last_value_counts_and_has_the_time_of_its_line(logs):
    attempt = an_attempt(placed=1, stopped=60)
    write(logs, attempt, "loss=3.5;\nTrain_error=0.138318;\n", NOW + 1000)
    write(logs, attempt, "loss=2e-1; and more\nnothing\n", NOW + 9000)
    (loss, error) = asyncio.run(FinalMetrics(AttemptDirectory(logs)).of([attempt], [LOSS, ERROR], LATER))
    assert (loss.name, loss.value, loss.at) == ("loss", 0.2, NOW + 9000)
    assert (error.value, error.at) == (0.138318, NOW + 1000)


def test_a_line_that_looks_like_a_metric_and_has_no_number_is_passed_over(logs):
    attempt = an_attempt(placed=1, stopped=60)
    write(logs, attempt, "Train_error=0.5;\nTrain_error=oops;\n")
    assert values(FinalMetrics(AttemptDirectory(logs)), [attempt], ERROR) == {"error": 0.5}


def test_what_is_no_number_in_json_is_left_out(logs):
    attempt = an_attempt(placed=1, stopped=60)
    write(logs, attempt, "loss=nan;\n")
    assert values(FinalMetrics(AttemptDirectory(logs)), [attempt], LOSS) == {}


def test_a_growing_log_is_read_on_from_where_it_was(logs):
    metrics, attempt = FinalMetrics(AttemptDirectory(logs)), an_attempt(placed=1, started=2)
    assert values(metrics, [attempt], LOSS) == {}
    write(logs, attempt, "loss=3;\nloss=2;\nhalf a line loss=1", NOW + 1000)
    assert values(metrics, [attempt], LOSS) == {"loss": 2.0}
    write(logs, attempt, ";\nno metric\n", NOW + 2000)
    assert values(metrics, [attempt], LOSS) == {"loss": 1.0}
    # Nothing new is found in what follows, and what was found before is still true.
    write(logs, attempt, "the end\n", NOW + 3000)
    assert values(metrics, [attempt], LOSS) == {"loss": 1.0}


def test_later_attempts_come_after_earlier_ones(logs):
    first, second = an_attempt(1, placed=1, stopped=60), an_attempt(2, placed=70, started=71)
    write(logs, first, "loss=3;\nTrain_error=9;\n")
    write(logs, second, "loss=1;\n")
    assert values(FinalMetrics(AttemptDirectory(logs)), [first, second], LOSS, ERROR) == {
        "loss": 1.0,
        "error": 9.0,
    }


def test_only_the_end_of_a_large_log_is_read(logs):
    attempt = an_attempt(placed=1, stopped=60)
    write(logs, attempt, "Train_error=1;\n" + "x" * 2000 + "\nloss=4;\n")
    assert values(FinalMetrics(AttemptDirectory(logs), scan_bytes=1000), [attempt], LOSS, ERROR) == {
        "loss": 4.0
    }


def test_a_pattern_without_end_is_given_up_and_the_others_are_found(logs):
    metrics, attempt = FinalMetrics(AttemptDirectory(logs), pattern_s=0.2), an_attempt(placed=1, stopped=60)
    write(logs, attempt, "loss=4;\n" + "a" * 60 + "!\n")
    assert values(metrics, [attempt], EVIL, LOSS) == {"loss": 4.0}
    # It is known by now and not tried again, also where it would have found something.
    another = an_attempt(2, placed=70, stopped=80)
    write(logs, another, "loss=5;\n1111\n")
    assert values(metrics, [another], EVIL, LOSS) == {"loss": 5.0}


def test_many_such_patterns_do_not_hold_up_a_caller_for_ever(logs):
    metrics, attempt = FinalMetrics(AttemptDirectory(logs), pattern_s=0.1), an_attempt(placed=1, stopped=60)
    write(logs, attempt, "loss=4;\n" + "a" * 60 + "!\n")
    evil = [(f"evil{n}", rf"^(a+)+{'b' * n}$") for n in range(1, 5)]
    # The first call gives up three of them, and the next one finishes.
    assert values(metrics, [attempt], *evil, LOSS) == {}
    assert values(metrics, [attempt], *evil, LOSS) == {"loss": 4.0}


def test_without_a_process_there_is_nothing_to_say_and_no_fault(logs):
    attempt = an_attempt(placed=1, started=2)
    write(logs, attempt, "loss=3;\n")
    assert values(FinalMetrics(AttemptDirectory(logs), python=str(logs / "gone")), [attempt], LOSS) == {}


def test_describe_shows_them_with_their_times(world):
    attempt = an_attempt(placed=1, started=2, exited=50, stopped=60, exit_code=0)
    request = {
        "AlgorithmSpecification": {
            "TrainingImage": IMAGE,
            "TrainingInputMode": "File",
            "MetricDefinitions": [{"Name": "loss", "Regex": LOSS[1]}],
        }
    }
    job = a_training_job(state=SUCCEEDED, attempts=[attempt], stopped_at=NOW + 60_000, request=request)
    world.gate.keep(job)
    write(world.logs, attempt, "loss=0.25;\n", NOW + 5000)
    described = world.client().describe_training_job(TrainingJobName="first")
    (metric,) = described["FinalMetricDataList"]
    assert (metric["MetricName"], metric["Value"]) == ("loss", 0.25)
    assert metric["Timestamp"].timestamp() == (NOW + 5000) / 1000
