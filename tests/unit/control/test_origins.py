"""What a submission of the daemon's own is for reaches the core with it."""

from __future__ import annotations

from tests.builders import a_job
from tests.unit.control.trainings import a_training
from windfall.control.commands.calendar import StartRun
from windfall.control.events import SubmitTraining
from windfall.control.origins import ServiceJobOrigin, TickOrigin, attributed
from windfall.jobs.ids import JobId


def test_a_run_of_a_tick_begins_with_its_tick():
    job = a_job("run").command
    run = attributed(job, TickOrigin("group/weekly", 7, JobId("run")))
    assert run == StartRun("group/weekly", 7, job)


def test_an_attempt_of_a_service_job_is_a_training_that_names_it():
    training = attributed(a_training("it"), ServiceJobOrigin(JobId("service")))
    assert isinstance(training, SubmitTraining)
    assert training.service_job == "service"


def test_what_a_client_submits_stays_as_it_is():
    job = a_job("own").command
    assert attributed(job, None) is job
