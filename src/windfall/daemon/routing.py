"""Which engine serves which environment, and so where each instruction goes.

An instruction goes to the engine of its instance's environment or, if it is not for an engine, to the post-commit task
of its type. Must not know what they do, nor anything of jobs. Every engine of this daemon is in the table; the first
serves environments that name none, and where that is the daemon's own host, so do the hosts that were added to it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from windfall.aws_api.batch.tags import ENGINE
from windfall.capacity.environments import ComputeEnvironment
from windfall.capacity.machines import ENGINE_FACT
from windfall.control.commands.calendar import StartRun
from windfall.control.events import (
    Command,
    CreateComputeEnvironment,
    SubmitTraining,
    TagResource,
    UpdateComputeEnvironment,
)
from windfall.control.instructions import (
    Instruction,
    LaunchInstance,
    PostCommitTask,
    StartAttempt,
    TerminateInstance,
)
from windfall.control.placing import opened_storage, stops_alone
from windfall.control.ports import Engine, Holdings
from windfall.control.snapshots import Offers
from windfall.control.state import State
from windfall.jobs.errors import Invalid
from windfall.jobs.ids import EnvironmentName, InstanceId, MachineId, QueueName

log = logging.getLogger(__name__)

#: The engine of the daemon's own host, and that of the hosts that were added to it.
LOCAL, HOSTS = "local", "hosts"
#: Entries of instances that are gone are dropped when there are this many of them.
_SPARE_HOMES = 1_000


class Routing:
    """The engines of this daemon."""

    def __init__(self, engines: Mapping[str, Engine]) -> None:
        self._engines = engines
        self._default = next(iter(engines.values()))
        #: What serves environments that name no engine: the default one first, then the hosts that were added to it.
        self._unnamed = (self._default, *_beside(self._default, engines))
        #: Which engine has which instance: the core may have dropped one before its engine is told.
        self._homes: dict[InstanceId, Engine] = {}
        #: What carries out the instructions that are not for an engine, by their type.
        self.post_commit_tasks: dict[type, Callable[[Any], None]] = {}

    def engine_of(self, environment: ComputeEnvironment) -> Engine:
        """The engine that serves an environment; the default if the one it names no longer exists."""
        return self._engines.get(environment.engine or "", self._default)

    def engines_of(self, environment: ComputeEnvironment) -> tuple[Engine, ...]:
        """All engines whose machines an environment may have."""
        named = self._engines.get(environment.engine or "")
        return self._unnamed if named is None else (named,)

    def check(self, state: State, command: Command) -> None:
        """Raise Rejected for an environment that no engine, or not the one that it names, can serve."""
        environment = _declared(state, command)
        if environment is None:
            return
        if environment.engine is not None and environment.engine not in self._engines:
            names = ", ".join(self._engines)
            raise Invalid(
                f"The tag windfall:engine names an unknown engine, {environment.engine[:100]!r};"
                f" this daemon has {names}"
            )
        if isinstance(command, TagResource):
            self._check_engine_stays(environment, command)
        self.engine_of(environment).check(environment)

    def _check_engine_stays(self, environment: ComputeEnvironment, command: TagResource) -> None:
        """Refuse a tag that would change the engine: an environment keeps the one that it was created with."""
        tagged = command.add.get(ENGINE)
        now = self.engine_of(environment).name
        if (tagged is not None and tagged != now) or (
            ENGINE in command.remove and environment.engine is not None
        ):
            raise Invalid(
                f"The tag {ENGINE} is read when a compute environment is created, and {environment.name} runs on the"
                f" engine {now}. To use another one, create another compute environment with that tag"
            )

    @property
    def engine_names(self) -> list[str]:
        """The names of all engines."""
        return sorted(self._engines)

    def serving(self, state: State, queue: QueueName) -> list[str]:
        """The names of the engines that serve a queue's environments."""
        declared = state.queues.get(queue)
        names = () if declared is None else declared.environments
        environments = [state.environments[name] for name in names if name in state.environments]
        return sorted(
            {engine.name for environment in environments for engine in self.engines_of(environment)}
        )

    def offers(self, state: State) -> Offers:
        """What could be launched now, by environment."""
        return {
            name: tuple(
                offer for engine in self.engines_of(environment) for offer in engine.offers(environment)
            )
            for name, environment in state.environments.items()
        }

    def adopt(self, state: State) -> None:
        """Give every engine what the store knows to be its own."""
        for instance in state.instances.values():
            self._homes[instance.id] = self._home(state, instance.environment, instance.machine)
        for engine in self._engines.values():
            own = [instance for instance in state.instances.values() if self._homes[instance.id] is engine]
            ids = {instance.id for instance in own}
            attempts = {
                token: job.attempt.instance
                for token, job in state.attempts.items()
                if job.attempt is not None and job.attempt.instance in ids
            }
            environments = [
                environment
                for environment in state.environments.values()
                if engine in self.engines_of(environment)
            ]
            machines = [it for it in state.machines.values() if it.facts.get(ENGINE_FACT) == engine.name]
            tasks = {
                token: attempt.task_id
                for token in attempts
                if (attempt := state.attempts[token].attempt) is not None
            }
            alone = frozenset(
                token
                for token in attempts
                if (attempt := (job := state.attempts[token]).attempt) is not None
                and stops_alone(state, job, attempt)
            )
            storage = {
                token: access
                for token in attempts
                if (access := opened_storage(state, state.attempts[token])) is not None
            }
            engine.adopt(Holdings(environments, own, attempts, machines, tasks, alone, storage))

    def carry_out(self, state: State, instructions: Sequence[Instruction]) -> None:
        """Give each engine its instructions, in order; the daemon's own post-commit tasks are started first."""
        if self.post_commit_tasks:
            for instruction in instructions:
                if (start := self.post_commit_tasks.get(type(instruction))) is not None:
                    start(instruction)
            instructions = [it for it in instructions if type(it) not in self.post_commit_tasks]
        if len(self._engines) == 1:
            self._default.carry_out(instructions)
            return
        by_engine: dict[str, list[Instruction]] = {}
        for instruction in instructions:
            for engine in self._addressees(state, instruction):
                by_engine.setdefault(engine.name, []).append(instruction)
        for engine in self._engines.values():
            if engine.name in by_engine:
                engine.carry_out(by_engine[engine.name])
        if len(self._homes) > 2 * len(state.instances) + _SPARE_HOMES:
            self._homes = {
                instance_id: home
                for instance_id, home in self._homes.items()
                if instance_id in state.instances
            }

    def _addressees(self, state: State, instruction: Instruction) -> Sequence[Engine]:
        if isinstance(instruction, LaunchInstance):
            home = self._home(state, instruction.environment, instruction.offer.machine)
            self._homes[instruction.instance] = home
            return (home,)
        if isinstance(instruction, PostCommitTask):
            log.error("no post-commit task for this instruction: %s", instruction)
            return ()
        if isinstance(instruction, TerminateInstance):
            engine = self._homes.pop(instruction.instance, None)
        else:
            engine = None if instruction.instance is None else self._homes.get(instruction.instance)
        if engine is not None:
            return (engine,)
        if isinstance(instruction, StartAttempt):
            log.error("%s cannot be started: no engine has %s", instruction.token, instruction.instance)
            return ()
        # The core no longer knows the attempt. The engine that does acts; the others ignore it.
        return tuple(self._engines.values())

    def _home(self, state: State, name: EnvironmentName, machine_id: MachineId | None) -> Engine:
        """The engine of an instance: its machine's, if that belongs to one, else its environment's."""
        machine = None if machine_id is None else state.machines.get(machine_id)
        if (
            machine is not None
            and (home := self._engines.get(machine.facts.get(ENGINE_FACT, ""))) is not None
        ):
            return home
        environment = state.environments.get(name)
        return self._default if environment is None else self.engine_of(environment)


def _beside(default: Engine, engines: Mapping[str, Engine]) -> tuple[Engine, ...]:
    """The engine of hosts that were added to this daemon, where its own host is the default."""
    hosts = engines.get(HOSTS)
    return (hosts,) if hosts is not None and default.name == LOCAL else ()


def _declared(state: State, command: Command) -> ComputeEnvironment | None:
    """The environment that a command would create or change, as it would be; None for other commands."""
    if isinstance(command, StartRun):
        return _declared(state, command.command)
    if isinstance(command, CreateComputeEnvironment | SubmitTraining):
        return command.environment
    if isinstance(command, UpdateComputeEnvironment):
        environment = state.environments.get(command.name)
        if environment is None or (command.instance_types, command.provisioning) == (None, None):
            return None
        types, provisioning = command.instance_types, command.provisioning
        return replace(
            environment,
            instance_types=environment.instance_types if types is None else types,
            provisioning=provisioning or environment.provisioning,
        )
    if isinstance(command, TagResource) and command.kind == "compute-environment":
        environment = state.environments.get(EnvironmentName(command.name))
        if environment is None:
            return None
        tags = {
            key: text
            for key, text in {**environment.tags, **command.add}.items()
            if key not in command.remove
        }
        return replace(environment, tags=tags)
    return None
