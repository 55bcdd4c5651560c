"""What is known of one attempt now, and what of it was told last: news go out on a change, at most once a second.

Decides when there is something to tell. Must not know where the news come from.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from windfall.agent.courier.messages import Line, News
from windfall.jobs.staging import Mark, Progress

_EVERY_S = 1.0


class Newsboard:
    """Written by the threads of one errand; read by the publisher."""

    def __init__(self, token: str, tell: Callable[[Line], None]) -> None:
        self._token = token
        self._tell = tell
        self._lock = threading.Lock()
        self._alarms: dict[str, str] = {}
        self._doing: str | None = None
        self._restored: Mark | None = None
        self._commit: str | None = None
        self.checkpoint: Mark | None = None
        self.progress: Progress | None = None
        self._told: News | None = None
        self._told_at = 0.0

    def set(
        self,
        *,
        doing: str | None = "",
        restored: Mark | None = None,
        checkpoint: Mark | None = None,
        commit: str | None = None,
    ) -> None:
        """Note what has become known; what is not given stays as it is."""
        with self._lock:
            if doing != "":
                self._doing = doing
            self._restored = restored or self._restored
            self.checkpoint = checkpoint or self.checkpoint
            self._commit = commit or self._commit

    def complain(self, source: str, text: str | None) -> None:
        """Note what is wrong with one part, or that it is right again."""
        with self._lock:
            if text is None:
                self._alarms.pop(source, None)
            else:
                self._alarms[source] = text

    def publish(self, *, at_once: bool = False) -> None:
        """Tell what has changed, unless something was told less than a second ago."""
        with self._lock:
            now = time.monotonic()
            news = self._news()
            if news == self._told or (not at_once and now - self._told_at < _EVERY_S):
                return
            self._told, self._told_at = news, now
        self._tell(News(self._token, time.time_ns() // 1_000_000, *_parts(news)))

    def _news(self) -> News:
        return News(
            token=self._token,
            at=0,
            doing=self._doing,
            alarm="; ".join(self._alarms.values()) or None,
            restored=self._restored,
            checkpoint=self.checkpoint,
            progress=self.progress,
            commit=self._commit,
        )


def _parts(
    news: News,
) -> tuple[str | None, str | None, Mark | None, Mark | None, Progress | None, str | None]:
    return news.doing, news.alarm, news.restored, news.checkpoint, news.progress, news.commit
