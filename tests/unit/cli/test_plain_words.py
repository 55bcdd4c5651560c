"""The command line says what AWS's texts mean, and names the options of the command that was used."""

from __future__ import annotations

import re

import pytest

from tests.builders import a_busy_world, a_job
from windfall.advisor.remedies import remedies
from windfall.cli.plain_words import is_of_run, with_options
from windfall.cli.run import run
from windfall.jobs.attempts import PREEMPTIONS
from windfall.jobs.aws_texts import EXITED, FAILED_TO_START, TIMED_OUT, AwsReason, host_lost
from windfall.jobs.aws_texts import AwsQuotaReason as QuotaWords
from windfall.jobs.diagnosis import Diagnosis, FailureCause
from windfall.jobs.ids import InstanceId
from windfall.scheduling.reasons import NoneAvailable
from windfall.views import plain_reasons
from windfall.views.endings import REMEDIES
from windfall.views.plain_reasons import cannot_start, plainly

AWS_TEXTS = [
    EXITED,
    FAILED_TO_START,
    TIMED_OUT,
    host_lost(InstanceId("i-0123")),
    *PREEMPTIONS.values(),
    *AwsReason,
    *QuotaWords,
    f"{AwsReason.NO_CAPACITY} [p5.48xlarge]",
    "OutOfMemoryError: Container killed due to memory usage",
    'CannotStartContainerError: exec: "x": executable file not found in $PATH',
    "CannotPullContainerError: manifest unknown",
    "Array Child Job failed",
    "Dependent Job failed",
]
#: What tells somebody who never used AWS nothing.
FOREIGN = re.compile(
    r"[Ee]ssential|[Tt]ask|EC2|\b[A-Z]{4,}[_:]|\bCE\(s\)|[a-z]Error:|-share preemption|Child Job"
)


@pytest.mark.parametrize("text", [text for text in AWS_TEXTS if text != AwsReason.NO_CAPACITY])
def test_no_term_of_aws_is_left(text):
    said = plainly(text)
    assert said != text
    assert not FOREIGN.search(said), said


def test_what_matters_stays():
    assert plainly(host_lost(InstanceId("i-0123"))) == "its instance i-0123 was taken away or lost"
    assert plainly("CannotPullContainerError: manifest unknown") == "cannot get its image: manifest unknown"
    assert plainly(f"{AwsReason.NO_CAPACITY} [p5, p4]") == "no instance of type p5, p4 is available now"
    assert plainly("my own reason") == "my own reason"
    local = NoneAvailable("windfall", ("local",)).text()
    assert plainly(local) == "windfall can use this host alone for it, and it is in use"


def test_the_reason_of_an_attempt_that_did_not_start_is_said_once():
    assert (
        plainly('Task failed to start, CannotStartContainerError: exec: "x"')
        == 'cannot start its command: exec: "x"'
    )


def test_the_same_words_as_the_core():
    assert plain_reasons.EXITED == EXITED


def test_some_reasons_last():
    assert cannot_start(AwsReason.TOO_LARGE)
    assert cannot_start(AwsReason.INVALID)
    assert not cannot_start(AwsReason.UNDETERMINED)
    assert not cannot_start(None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("set resourceRequirements MEMORY to 16,384 MiB or more", "use --memory 16G or more"),
        ("would start now with memory <= 1,500 MiB", "would start now with --memory 1500M"),
        ("keep checkpoints (tag windfall:checkpoint=true), so", "keep checkpoints (--checkpoint), so"),
        ("use the tag windfall:on-gpu-oom=larger", "use --on-gpu-oom larger"),
        ("without windfall:gpu-model", "without --gpu-model"),
        ("raise timeout.attemptDurationSeconds (60 s now)", "use a larger --timeout (60 s now)"),
        (
            "submit it with the tag windfall:profile=true and",
            "submit it with --tag windfall:profile=true and",
        ),
        ("ask for more (resourceRequirements VCPU)", "ask for more (--vcpus)"),
    ],
)
def test_fields_of_the_api_become_options(text, said):
    assert with_options(text) == said


def test_remedies_of_all_failures_name_options_that_exist():
    world = a_busy_world().submits(a_job("a"))
    job = world.state.jobs["a"]
    texts = [text for _, text in REMEDIES]
    for cause in FailureCause:
        texts += remedies(Diagnosis(cause, "evidence"), job)
    said = [with_options(text) for text in texts]
    options = {option for parameter in run.params for option in parameter.opts} | {
        "--memory",
        "--array",
        "--state",
    }
    for text in said:
        assert set(re.findall(r"--[a-z][a-z-]*", text)) <= options
        assert not re.search(r"resourceRequirements|retryStrategy|attemptDurationSeconds|tag windfall", text)
    assert any("--memory" in text for text in said)
    assert any("--attempts 3" in text and "--checkpoint" in text for text in said)


@pytest.mark.parametrize(
    ("definition", "of_run"),
    [
        ("windfall-run:1", True),
        ("arn:aws:batch:us-east-1:123456789012:job-definition/windfall-run:7", True),
        ("windfall-run-python-3-12-0a1b2c3d:1", True),
        ("windfall-runner:1", False),
        ("", False),
        (None, False),
    ],
)
def test_jobs_of_run_are_known_by_their_definition(definition, of_run):
    assert is_of_run(definition) == of_run
