"""How a simulated world comes to rest: nothing goes wrong any more, and all must end or say why it cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.calendars import check_on_time, check_ticks_at_rest, delete_schedules
from tests.simulation.invariants import check_dependency_failures, check_settled
from tests.simulation.service_queues import check_services_at_rest, services_settled
from tests.simulation.store import BrokenPromise
from tests.simulation.taking_away import check_ledger, check_preemptions_max
from tests.simulation.telling import check_told
from windfall.jobs.ids import split_child
from windfall.jobs.states import RUNNING

if TYPE_CHECKING:
    from tests.simulation.world import World

#: How long the world may take to come to rest once nothing goes wrong any more.
CALM_MS = 3_600_000
#: How long schedules go on undisturbed: every one of this world is due within it.
CALENDAR_MS = 130_000


def calm_down(world: World) -> None:
    """Nothing goes wrong any more: everything must come to an end, or say why it cannot."""
    world.faults = False
    world.engine.trouble = False
    world.engine.heal_all()
    world.note("nothing goes wrong any more")
    world.daemon.start()
    world.run_for(15_000)
    _check_reconciled(world)
    world.clients.enable_everything()
    if world.daemon.state.schedules:
        world.run_for(CALENDAR_MS)
        check_on_time(world)
        delete_schedules(world.clients)
    end = world.now + CALM_MS
    patience = world.now + 120_000
    while world.now < end:
        world.run_for(5_000)
        if world.now > patience:
            world.clients.terminate_endless()
            world.clients.release_all()
            patience += 120_000
        settled = services_settled(world.daemon.state) and not world.daemon.state.ticks
        if settled and check_settled(world.daemon.state, world.daemon.offers(), world.now):
            break
    else:
        stuck = [job.story() for job in world.daemon.state.jobs.values()]
        stuck += [f"service job {job.id} is {job.state}" for job in world.daemon.state.service_jobs.values()]
        raise BrokenPromise(f"after an hour without a fault these have not ended: {stuck}")
    world.run_for(20_000)
    _check_rest(world)


def _check_reconciled(world: World) -> None:
    """All have spoken with one another again: what is said to run runs, and what was to stop has stopped."""
    known = {token for agent in world.engine.agents.values() for token in agent.journal}
    for token, job in world.daemon.state.attempts.items():
        attempt = job.attempt
        if job.state is RUNNING and token not in known:
            raise BrokenPromise(f"said to run, and no agent knows of it: {job.story()}")
        over_at = max(attempt.stop_at or 0, attempt.deadline_at or 0) if attempt is not None else 0
        if over_at and world.now - over_at > 14_000:
            raise BrokenPromise(f"was told to stop at {attempt.stop_at} and still runs: {job.story()}")


def _check_rest(world: World) -> None:
    check_told(world.store)
    check_services_at_rest(world)
    check_ticks_at_rest(world)
    world.check_acknowledged()
    if world.processes:
        raise BrokenPromise(f"processes without a job: {sorted(world.processes)}")
    for agent in world.engine.agents.values():
        if agent.machine_alive and agent.journal:
            raise BrokenPromise(f"{agent.machine.id} was never told to forget {sorted(agent.journal)}")
    existing = world.engine.instances()
    leaked = [instance for instance in existing if instance not in world.daemon.state.instances]
    if leaked:
        raise BrokenPromise(f"nobody will ever terminate {leaked}")
    ghosts = [instance for instance in world.daemon.state.instances if instance not in existing]
    if ghosts:
        raise BrokenPromise(f"the daemon counts on {ghosts}, which do not exist")
    check_dependency_failures(world.store)
    used = {instance.machine for instance in world.daemon.state.instances.values()}
    unowned = (set(world.daemon.state.machines) | set(world.store.small["machines"])) - used
    unowned -= world.engine.lasting_machines()
    if unowned:
        raise BrokenPromise(f"nobody has an instance on {sorted(unowned)} any more, and they are remembered")
    for job in world.store.jobs.values():
        parent, _ = split_child(job.id)
        check_ledger(job, world.rules.rates)
        check_preemptions_max(job)
        if job.finished and any(attempt.stopped_at is None for attempt in job.attempts):
            raise BrokenPromise(f"finished with an open attempt: {job.story()}")
        if not job.finished and parent not in world.daemon.state.jobs:
            raise BrokenPromise(f"live in the store and not in memory: {job.story()}")
