"""Delivers the events that rounds have committed to the file and the webhook: at least once, in order for each job.

Reads a page from the store, delivers it, and removes what was delivered. A crash between two of these steps sends an
event again, with the same id, and never loses one. What cannot be delivered stays in the store, not in memory. Must
not know what an event is about.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from windfall.aws_api.batch.arns import Arns
from windfall.aws_api.batch.state_change_events import event_line
from windfall.backoff import Backoff, Pauses
from windfall.control.outbox import Destination, OutboxEvent
from windfall.control.ports import Store
from windfall.daemon.errors import BadSetting
from windfall.daemon.event_sinks import Event, EventFile, Outcome, Sink
from windfall.daemon.settings import Settings
from windfall.daemon.webhook import Webhook, read_token
from windfall.store.errors import StoreError

log = logging.getLogger(__name__)

PAGE = 200
#: Seconds before an unreachable destination is tried again, at first and at most.
AGAIN = Pauses(1.0, 60.0)
#: Seconds between two reads of the store when no round has reported an event.
LOOK_S = 5.0
#: An event that could not be delivered for this long is dropped, as EventBridge does.
GIVEN_UP_MS = 24 * 3600 * 1000


def destinations_in(settings: Settings) -> tuple[Destination, ...]:
    """The destinations that the settings name."""
    settings_of = {Destination.FILE: settings.events_file, Destination.WEBHOOK: settings.events_webhook}
    return tuple(destination for destination, setting in settings_of.items() if setting is not None)


def check_event_settings(settings: Settings) -> None:
    """Refuse settings that can never work."""
    if settings.events_webhook_token_file is not None:
        if settings.events_webhook is None:
            raise BadSetting(
                "events_webhook_token_file is set but events_webhook is not; set events_webhook too"
            )
        try:
            read_token(Path(settings.events_webhook_token_file))
        except (OSError, UnicodeDecodeError) as error:
            raise BadSetting(f"events_webhook_token_file: {error}") from None
    if settings.events_file is not None and not Path(settings.events_file).parent.is_dir():
        raise BadSetting(
            f"events_file: the directory of {settings.events_file} does not exist; make it first"
        )


class EventDelivery:
    """All destinations of one daemon."""

    def __init__(self, settings: Settings, store: Store, clock_ms: Callable[[], int]) -> None:
        self._store = store
        arns = Arns(settings.region, settings.account_id)
        sinks: dict[Destination, Sink] = {}
        if settings.events_file is not None:
            sinks[Destination.FILE] = EventFile(Path(settings.events_file))
        if settings.events_webhook is not None:
            token_file = settings.events_webhook_token_file
            sinks[Destination.WEBHOOK] = Webhook(
                settings.events_webhook, None if token_file is None else Path(token_file)
            )
        self._dispatchers = [
            EventDispatcher(name, sink, store, arns, clock_ms) for name, sink in sinks.items()
        ]

    def wake(self) -> None:
        """There are new events to deliver."""
        for dispatcher in self._dispatchers:
            dispatcher.wake()

    def start(self) -> list[asyncio.Task[None]]:
        """One task for each destination, so that none waits for another."""
        with suppress(StoreError):  # Any later start can do it.
            forgotten = self._store.forget_undelivered([dispatcher.name for dispatcher in self._dispatchers])
            if forgotten:
                log.warning(
                    "dropped %d events for destinations that are no longer in the settings", forgotten
                )
        return [
            asyncio.create_task(dispatcher.run(), name=f"events to the {dispatcher.name}")
            for dispatcher in self._dispatchers
        ]


class EventDispatcher:
    """Serves one destination."""

    def __init__(self, name: str, sink: Sink, store: Store, arns: Arns, clock_ms: Callable[[], int]) -> None:
        self.name = name
        self._sink, self._store, self._arns, self._clock_ms = sink, store, arns, clock_ms
        self._woken = asyncio.Event()
        self._backoff = Backoff(AGAIN)
        self._trouble: str | None = None

    def wake(self) -> None:
        """There are new events to deliver."""
        self._woken.set()

    async def run(self) -> None:
        """Deliver until cancelled."""
        thread = ThreadPoolExecutor(1, thread_name_prefix=f"events-{self.name}")
        try:
            while True:
                self._woken.clear()
                count, outcome = await asyncio.get_running_loop().run_in_executor(thread, self._page)
                self._note(outcome)
                if outcome.trouble is not None:
                    await asyncio.sleep(self._backoff.failed())
                elif count < PAGE:
                    await self._wait()
        finally:
            self._sink.close()
            thread.shutdown(wait=False)

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(LOOK_S):
                await self._woken.wait()
        except TimeoutError:
            pass

    def _page(self) -> tuple[int, Outcome]:
        """Deliver one page, in a thread; returns how many events it had, and the outcome."""
        try:
            page = self._store.undelivered(self.name, PAGE)
            if not page:
                return 0, Outcome()
            events = [Event(it.id, it.subject, event_line(it, self._store, self._arns)) for it in page]
            outcome = self._sink.deliver(events)
            gone = outcome.delivered
            if outcome.trouble is not None:
                gone = [*gone, *self._given_up(page, outcome)]
            self._store.delivered(self.name, gone)
        except StoreError as error:
            return 0, Outcome(trouble=str(error))
        except Exception as error:  # the edge of the task: a faulty page must not end the daemon
            log.exception("events for the %s cannot be delivered", self.name)
            return 0, Outcome(trouble=str(error) or type(error).__name__)
        return len(page), outcome

    def _given_up(self, page: Sequence[OutboxEvent], outcome: Outcome) -> list[str]:
        delivered, before = set(outcome.delivered), self._clock_ms() - GIVEN_UP_MS
        old = [event for event in page if event.at < before and event.id not in delivered]
        for event in old:
            log.error(
                "event %s of job %s is dropped after a day: %s", event.id, event.subject, outcome.trouble
            )
        return [event.id for event in old]

    def _note(self, outcome: Outcome) -> None:
        """Log a failure once, and once that it is over."""
        if outcome.trouble is None:
            if self._trouble is not None:
                log.info("events reach the %s again", self.name)
        elif self._trouble is None:
            log.warning(
                "events to the %s: %s; they stay in the store and are tried again", self.name, outcome.trouble
            )
        if outcome.trouble is None or outcome.delivered:
            self._backoff.succeeded()
        self._trouble = outcome.trouble
