"""The life of staged attempts between the agent's loop and its courier: prepared, watched, saved.

Decides what the courier is told at which stage, and again when there is a new one; what the daemon is told about the
courier's news; and in which words a notice is written down for the job. Must not know how anything is moved, nor the
sockets.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import msgspec

from windfall.agent.attempt import Attempt
from windfall.agent.courier.messages import (
    Broken,
    Drop,
    Dropped,
    Errand,
    Finish,
    Finished,
    News,
    Prepare,
    Prepared,
    PrepareFailed,
    Report,
    Store,
    Stored,
    Watch,
)
from windfall.agent.courier_link import Couriers
from windfall.agent.demotion import Identity
from windfall.agent.directories import make_shared_directory
from windfall.agent.errors import AgentError, refusal
from windfall.agent.events import AgentEvent, Brought, Failed, LetGo, Saved, Spoiled
from windfall.agent.machine import Machine
from windfall.agent.messages import Exited, Lost, Message, Progressed, Start
from windfall.agent.object_access import region
from windfall.agent.places import INPUT, OWN
from windfall.agent.preparation import job_user, places_of, working_directory
from windfall.agent.records import Launching
from windfall.agent.sealing import seal, unseal
from windfall.agent.speech import say
from windfall.agent.stages import Stage
from windfall.agent.steward.messages import Admit
from windfall.agent.unstored import Unstored
from windfall.jobs.attempts import UNSTORED
from windfall.jobs.git_credentials import credential_of
from windfall.jobs.storage import StorageAccess

#: How long saving what a process left may take when nothing else presses. The courier gives up much earlier when
#: the store does not answer at all.
FINISH_WITHIN_S = 6 * 3600.0
#: The same when the agent is shut down with all that runs.
CLOSING_WITHIN_S = 30.0
_SAVING = "saving what it left"


class StagedAttempts:
    """The attempts that the courier works for."""

    def __init__(
        self,
        couriers: Couriers,
        machine: Machine,
        directory: str,
        tell: Callable[[Message], None],
        react: Callable[[AgentEvent], None],
    ) -> None:
        self._couriers = couriers
        self._steward = couriers.steward
        self._machine = machine
        self._tell = tell
        self._react = react
        self._open: dict[str, Attempt] = {}
        #: Told to be dropped and not yet let go of by the courier.
        self._dropping: dict[str, Identity | None] = {}
        #: Set at a shutdown that stops everything.
        self.finish_within_s = FINISH_WITHIN_S
        couriers.on_report = self._on_report
        couriers.on_new = self._on_new_courier
        #: What ended attempts have left that is not stored yet.
        self.unstored = Unstored(directory, self._store)
        self.unstored.ask()

    # --- the stages ----------------------------------------------------------------------------------

    def take(self, attempt: Attempt) -> None:
        """Work for an attempt from now on, at whichever stage it is."""
        self._open[attempt.token] = attempt
        self._direct(attempt)

    def save(self, attempt: Attempt) -> None:
        """Have what its process left stored, by the deadline that its story gives now."""
        departed = attempt.story.departed
        if departed is not None and (attempt.news is None or attempt.news.exited_at is None):
            at = departed.at
            self._pass_on(attempt, Progressed(attempt.token, at, doing=_SAVING, exited_at=at))
        self.take(attempt)

    def drop(self, attempt: Attempt) -> None:
        """Nothing is wanted of the attempt any more; it is told when nobody has its files in hand."""
        if self._open.pop(attempt.token, None) is None:
            self._react(LetGo(attempt.token))
            return
        user = self._courier_user(attempt)
        if self._couriers.running(user):
            self._dropping[attempt.token] = user
            self._couriers.send(user, Drop(attempt.token))
        else:
            self._let_go(attempt.token, user)
            self._react(LetGo(attempt.token))

    def news(self) -> list[Message]:
        """Return what is known of all attempts, for a daemon that has just come."""
        return [attempt.news for attempt in self._open.values() if attempt.news is not None]

    def _direct(self, attempt: Attempt) -> None:
        story, user = attempt.story, self._courier_user(attempt)
        try:
            errand = self._errand(attempt, user)
            if user is not None:
                make_shared_directory(self._machine.settings.attempts_directory, user.uid, user.gid)
                if story.launching is None:
                    unseal(errand.places.root, _sealed(errand), (user.uid, user.gid))
            self._admit(errand, user, story.launching)
        except (AgentError, OSError) as error:
            self._react(Failed(attempt.token, refusal(str(error)), _now_ms()))
            return
        if story.departed is not None:
            self._couriers.send(user, self._finish(attempt, errand))
        elif story.launching is not None:
            self._couriers.send(user, Watch(errand, story.launching.port))
        else:
            self._couriers.send(user, Prepare(errand))

    def _courier_user(self, attempt: Attempt) -> Identity | None:
        """Return the user that moves the attempt's data; None means the agent's own user.

        What a container leaves belongs to the user of its image, who may be anybody, so its courier may read all files.
        """
        try:
            user = job_user(attempt, self._machine)
        except AgentError:
            return None  # Such an attempt is refused, with the reason, before anything is moved for it.
        if not user.drop:
            return None
        return Identity(user.uid, user.gid, user.groups, reads_all=attempt.launcher.has_foreign_files)

    def _admit(self, errand: Errand, user: Identity | None, launching: Launching | None) -> None:
        """Have the steward work for the attempt, and lead the machine's metadata address to the attempt's own port."""
        token, settings = errand.token, self._machine.settings
        port = launching.port if launching is not None else 0
        if user is not None:
            # Once the job runs, nobody of its user has a reason to ask for the credential.
            credential = errand.credential if launching is None else ""
            self._steward.admit(Admit(token, user, errand.storage, errand.secret, port, credential))
        elif settings.link_local_metadata and os.geteuid() == 0:
            # A courier with the agent's rights opens storage itself.
            self._steward.admit(
                Admit(token, Identity(0, 0), StorageAccess(()), self._steward.secret(token), port)
            )

    def _finish(self, attempt: Attempt, errand: Errand) -> Finish:
        story = attempt.story
        assert story.departed is not None
        deadline_at = story.departed.at + int(self.finish_within_s * 1000)
        if story.noticed is not None:
            deadline_at = min(deadline_at, story.noticed.deadline_at)
        if story.hurried is not None:
            at, within_s = story.hurried
            deadline_at = min(deadline_at, max(story.departed.at, at) + int(within_s * 1000))
        code = story.departed.exit_code if isinstance(story.departed, Exited) else None
        # Exit code 0 within the window is success, and its outputs are wanted.
        interrupted = story.noticed is not None and code != 0
        return Finish(errand, code, interrupted, story.losing, deadline_at, _killed_at(attempt))

    def _errand(self, attempt: Attempt, courier: Identity | None) -> Errand:
        start, user = attempt.story.accepted, job_user(attempt, self._machine)
        assert start is not None
        return Errand(
            token=attempt.token,
            places=places_of(attempt),
            directory=working_directory(attempt, start),
            fence=start.fence,
            storage=start.storage or StorageAccess(),
            # A courier of the job's user makes files that are the job's already.
            owner=user.owner if courier is None else None,
            instance=start.instance,
            instance_type=start.instance_type,
            market=start.market,
            region=region(self._machine.settings.objects_file),
            secret=self._steward.secret(attempt.token) if courier is not None else "",
            credential=_credential(start),
            is_foreign=courier is not None and courier.reads_all,
        )

    # --- the courier ---------------------------------------------------------------------------------

    def _store(self, user: Identity | None, order: Store) -> None:
        """Have stored what an attempt left that is over."""
        errand = order.errand
        if user is not None:
            make_shared_directory(self._machine.settings.attempts_directory, user.uid, user.gid)
            errand = msgspec.structs.replace(errand, secret=self._steward.secret(errand.token))
            self._steward.admit(Admit(errand.token, user, errand.storage, errand.secret))
        self._couriers.send(user, msgspec.structs.replace(order, errand=errand))

    def _on_new_courier(self, user: Identity | None) -> None:
        self.unstored.ask_of(user)
        for token in [token for token, its in self._dropping.items() if its == user]:
            self._released(token, user)
        for attempt in list(self._open.values()):
            if self._courier_user(attempt) == user:
                self._direct(attempt)

    def _on_report(self, user: Identity | None, report: Report) -> None:
        attempt = self._open.get(report.token)
        if isinstance(report, Dropped):
            self._released(report.token, user)
        elif isinstance(report, Stored):
            if self.unstored.stored(report.token, user):
                self._let_go(report.token, user)
        elif attempt is None:
            return  # It was dropped while this was on its way.
        elif self._courier_user(attempt) != user:
            say(f"{report.token}: ignored a report from a courier of another user")
        elif isinstance(report, Prepared):
            self._prepared(attempt, report)
        elif isinstance(report, PrepareFailed):
            self._react(Failed(attempt.token, refusal(report.reason), _now_ms()))
        elif isinstance(report, News):
            self._pass_on(attempt, _as_progressed(report))
        elif isinstance(report, Broken):
            attempt.fault = report.reason
            self._react(Spoiled(attempt.token))
        else:
            self._finished(attempt, report)

    def _prepared(self, attempt: Attempt, report: Prepared) -> None:
        if attempt.stage is not Stage.STAGING_IN:
            return
        launching = Launching(attempt.token, report.port, report.at)
        user = self._courier_user(attempt)
        try:
            errand = self._errand(attempt, user)
            if user is not None:
                seal(errand.places.root, _sealed(errand), OWN, (user.uid, user.gid))
            self._admit(errand, user, launching)
        except AgentError as error:
            self._react(Failed(attempt.token, refusal(str(error)), _now_ms()))
            return
        self._react(Brought(attempt.token, report.port, report.at))

    def _pass_on(self, attempt: Attempt, news: Progressed) -> None:
        merged = news
        if attempt.news is not None:
            kept = {
                name: getattr(attempt.news, name)
                for name in ("restored", "checkpoint", "progress", "commit", "exited_at")
                if getattr(news, name) is None
            }
            merged = msgspec.structs.replace(news, **kept)
        attempt.news = merged
        self._tell(news)

    def _finished(self, attempt: Attempt, report: Finished) -> None:
        departed = attempt.story.departed
        if departed is None:
            return
        # Not dropped: it has let go by itself.
        user = self._courier_user(attempt)
        if self._open.pop(attempt.token, None) is not None:
            self._let_go(attempt.token, user)
        reason = departed.reason if isinstance(departed, Exited) else None
        if (report.unstored or report.unstored_checkpoint) and not attempt.story.given_up:
            # Before the end is told: from then on nobody else knows of what is not stored.
            lacks = (report.unstored, report.unstored_checkpoint, _killed_at(attempt))
            order = Store(self._errand(attempt, user), *lacks)
            self.unstored.keep(order, attempt.intended.private_directories, user)
            reason = reason or f"{UNSTORED}: {report.why_unstored}"
        if isinstance(departed, Lost):
            self._react(Saved(attempt.token, departed))
            return
        known = attempt.news
        result = msgspec.structs.replace(
            departed,
            at=max(departed.at, _now_ms()),
            exited_at=departed.at,
            reason=reason if departed.exit_code == 0 else departed.reason,
            checkpoint=report.checkpoint or (known.checkpoint if known is not None else None),
            progress=report.progress or (known.progress if known is not None else None),
            failure=attempt.fault or report.failure,
        )
        self._react(Saved(attempt.token, result))

    def _released(self, token: str, user: Identity | None) -> None:
        if token in self._dropping and self._dropping[token] == user:
            del self._dropping[token]
            self._let_go(token, user)
            self._react(LetGo(token))

    def _let_go(self, token: str, user: Identity | None) -> None:
        """Nothing is moved for an attempt any more; a courier that has no other may rest."""
        self._steward.dismiss(token)
        if user in self._dropping.values() or self.unstored.has_for(user):
            return
        if all(self._courier_user(attempt) != user for attempt in self._open.values()):
            self._couriers.rest(user)


def _sealed(errand: Errand) -> list[str]:
    """The directories that become root's when the job starts.

    Where the job is a container they also have the list that lets the feeder of its pipes in.
    """
    kept = errand.places.kept_directories(errand.directory)
    has_pipes = any(channel.mode == "Pipe" for channel in errand.places.staging.channels)
    return [*kept, INPUT] if errand.is_foreign and has_pipes else kept


def _credential(start: Start) -> str:
    source = start.staging.git if start.staging is not None else None
    return credential_of(source.url, start.tenant) if source is not None else ""


def _as_progressed(news: News) -> Progressed:
    return Progressed(
        token=news.token,
        at=news.at,
        doing=news.doing,
        restored=news.restored,
        checkpoint=news.checkpoint,
        alarm=news.alarm,
        progress=news.progress,
        commit=news.commit,
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _killed_at(attempt: Attempt) -> int | None:
    """When the process was killed; None where it left by itself, or nobody knows."""
    departed = attempt.story.departed
    if not isinstance(departed, Exited) or departed.exit_code is None:
        return None
    if not _was_killed(attempt, departed.exit_code):
        return None
    return departed.at


def _was_killed(attempt: Attempt, exit_code: int) -> bool:
    """Whether the process did not leave by itself. Programs that save when they are told leave with 143, by themselves.

    With that code an attempt was killed all the same when nobody in it listened and everybody had got the signal.
    """
    if exit_code == 128 + signal.SIGTERM:
        return attempt.story.noticed is not None and attempt.terminated and not attempt.told
    return exit_code > 128
