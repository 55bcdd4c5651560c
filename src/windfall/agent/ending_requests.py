"""What the daemon asks about the end of attempts: stop, take away with notice, recommend to move.

Decides what each request means at the stage where the attempt is. Must not know signals (stopping.py sends them
when they are due) or the socket.
"""

from __future__ import annotations

from windfall.agent.attempt import Attempt
from windfall.agent.messages import Interrupt, Lost, Rebalance, Stop
from windfall.agent.notices import write_notice, write_rebalance
from windfall.agent.stages import Losing, Noticed, Stage
from windfall.agent.supervisor import Supervisor, now_ms


class EndingRequests:
    """The handlers of one agent."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def stop_all(self, grace_s: float) -> None:
        """Stop every attempt, for a shutdown."""
        self._supervisor.staged.hasten_all()
        for attempt in self._supervisor.live:
            self.on_stop(Stop(attempt.token, grace_s))

    def on_stop(self, stop: Stop) -> None:
        """Begin to stop an attempt; one that has ended or is unknown is only answered."""
        supervisor = self._supervisor
        attempt = self._known_live(stop.token)
        if attempt is None:
            return
        if stop.lose and not attempt.story.losing:
            supervisor.journal.note(attempt.story, Losing(stop.token))
        if stop.save_within_s is not None and attempt.hurried is None:
            attempt.hurried = (now_ms(), stop.save_within_s)
        attempt.given_up = attempt.given_up or stop.gives_up
        if attempt.unstarted:
            supervisor.end_unstarted(attempt, "stopped before it was started")
        elif attempt.stage is Stage.STAGING_OUT:
            supervisor.staged.hasten(attempt)
        else:
            supervisor.stops.stop(attempt, stop.grace_s)

    def on_interrupt(self, interrupt: Interrupt) -> None:
        """Give an attempt notice; one that has notice already can only lose time by another."""
        supervisor = self._supervisor
        attempt = self._known_live(interrupt.token)
        if attempt is None:
            return
        if attempt.unstarted:
            supervisor.end_unstarted(attempt, "its place was taken away before it was started")
            return
        if attempt.intended.container and attempt.started_at is None:
            supervisor.stops.stop(attempt, 0.0)
            return
        before = attempt.story.noticed
        if before is not None and before.deadline_at <= interrupt.deadline_at:
            return
        at = now_ms() if before is None else before.at
        noticed = Noticed(interrupt.token, at, interrupt.deadline_at, interrupt.words)
        supervisor.journal.note(attempt.story, noticed)
        supervisor.journal.flush()
        # Before any signal: the process that gets one may look for it.
        write_notice(attempt)
        supervisor.stops.interrupt(attempt)
        supervisor.staged.hasten(attempt)

    def on_rebalance(self, rebalance: Rebalance) -> None:
        """Pass a recommendation on to the job; it changes nothing else."""
        supervisor = self._supervisor
        attempt = supervisor.attempts.get(rebalance.token)
        if attempt is not None and attempt.live:
            write_rebalance(attempt, rebalance.at)

    def _known_live(self, token: str) -> Attempt | None:
        """Return an attempt that has not ended; what is known of any other is answered here."""
        supervisor = self._supervisor
        attempt = supervisor.attempts.get(token)
        if attempt is None:
            supervisor.outbox.append(Lost(token, now_ms()))
        elif attempt.story.result is not None:
            supervisor.outbox.append(attempt.story.result)
        else:
            return attempt
        return None
