"""What is counted about the requests of one replica: how many, how they ended, and how long each stage took.

Decides the buckets: powers of two of a microsecond, because finding one costs next to nothing. Must not know requests.
"""

from __future__ import annotations

from collections.abc import Sequence

from windfall.hosting.traffic import BUCKETS, STAGES, ReplicaTraffic, StageTimes


class ReplicaCounters:
    """Counts of one replica, from zero."""

    __slots__ = ("invocations", "status_4xx", "status_5xx", "last_request_at", "_sums", "_histograms")

    def __init__(self) -> None:
        self.invocations = self.status_4xx = self.status_5xx = 0
        self.last_request_at = 0
        self._sums = [0] * len(STAGES)
        self._histograms = [[0] * BUCKETS for _ in STAGES]

    def count(self, status: int, times: Sequence[float], at_ms: int) -> None:
        """Count one request; `times` are the moments, in seconds, of its begin and of the end of each stage."""
        self.invocations += 1
        if status >= 500:
            self.status_5xx += 1
        elif status >= 400:
            self.status_4xx += 1
        self.last_request_at = at_ms
        before = times[0]
        sums, histograms = self._sums, self._histograms
        for stage in range(len(STAGES)):
            at = times[stage + 1]
            took_us = int((at - before) * 1e6)
            before = at
            sums[stage] += took_us
            histograms[stage][min(took_us.bit_length(), BUCKETS - 1)] += 1

    def traffic(self, replica_id: str, in_flight: int) -> ReplicaTraffic:
        """The counts as they are now."""
        return ReplicaTraffic(
            id=replica_id,
            in_flight=in_flight,
            invocations=self.invocations,
            status_4xx=self.status_4xx,
            status_5xx=self.status_5xx,
            stages={
                name: StageTimes(self._sums[stage], tuple(self._histograms[stage]))
                for stage, name in enumerate(STAGES)
            },
            last_request_at=self.last_request_at,
        )
