"""CloudWatch as a service: ListMetrics, GetMetricData, GetMetricStatistics over the samples of jobs.

Reading of files happens off the event loop, and of each attempt once in a request. Points become averages, sums,
extremes and percentiles of periods as CloudWatch counts them: an average weighs each point by the time that it stands
for, because old points of a long job stand for more of it. Must not know bytes.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, fsum, isnan
from typing import Any

from windfall.advisor.samples import Recording
from windfall.aws_api.cloudwatch import expressions
from windfall.aws_api.cloudwatch.errors import invalid_combination, invalid_token, invalid_value
from windfall.aws_api.cloudwatch.kinds import GpuMetric
from windfall.aws_api.cloudwatch.subjects import Named, find, walk
from windfall.aws_api.protocol.rpc_service import RpcService
from windfall.aws_api.protocol.service import Call, Role
from windfall.aws_api.tenants.gate import TenantGate, view_of
from windfall.control.ports import CorePort, Store
from windfall.jobs.tenants import View

#: CloudWatch's own bounds.
QUERIES_MOST, DATAPOINTS_MOST, STATISTICS_POINTS_MOST, PAGE = 500, 100_800, 1_440, 500
#: Only the newest jobs are listed; any job can be asked for by name.
_LISTED_JOBS = 200
#: Reads the samples of an attempt by its task id.
Recordings = Callable[[str], Recording | None]


def cloudwatch_service(gate: CorePort, recordings: Recordings) -> RpcService:
    """Make the service that shows what `recordings` has of the jobs that the gate's store knows."""
    operations = _Operations(gate, recordings)
    handlers = {
        "ListMetrics": operations.list_metrics,
        "GetMetricData": operations.get_metric_data,
        "GetMetricStatistics": operations.get_metric_statistics,
    }
    return RpcService("cloudwatch", handlers, dict.fromkeys(handlers, Role.READ))


class _Operations:
    def __init__(self, gate: CorePort, recordings: Recordings) -> None:
        self._gate = gate
        self._recordings = recordings

    def _seen(self, call: Call) -> TenantGate:
        return TenantGate(self._gate, view_of(call.caller))

    async def list_metrics(self, call: Call) -> dict[str, Any]:
        """ListMetrics: those of the newest jobs, by namespace, name and dimensions."""
        params = call.params
        metrics: list[Named] = await self._seen(call).read(lambda store: walk(store, _LISTED_JOBS))
        wanted = [metric for metric in metrics if _is_wanted(metric, params)]
        begin = _place(params.get("NextToken"), len(wanted))
        page = wanted[begin : begin + PAGE]
        more = begin + PAGE < len(wanted)
        return {
            "Metrics": [_described(metric) for metric in page],
            "NextToken": str(begin + PAGE) if more else None,
        }

    async def get_metric_data(self, call: Call) -> dict[str, Any]:
        """GetMetricData: several metrics and expressions over them."""
        params = call.params
        start_at, end_at = _window(params)
        queries = params["MetricDataQueries"]
        _check_queries(queries)
        if params.get("NextToken"):
            raise invalid_token()
        cache: dict[str, Recording | None] = {}
        series: dict[str, expressions.Series] = {}
        labels: dict[str, str] = {}
        for query in (candidate for candidate in queries if "MetricStat" in candidate):
            stat = query["MetricStat"]
            metric = stat["Metric"]
            labels[query["Id"]] = metric.get("MetricName", "")
            periods = await self._periods(call, metric, check_period(stat["Period"]), start_at, end_at, cache)
            name = check_statistic(stat["Stat"])
            series[query["Id"]] = {at: statistic(name, points) for at, points in periods.items()}
        _evaluate(queries, series)
        newest_first = params.get("ScanBy", "TimestampDescending") == "TimestampDescending"
        left = min(params.get("MaxDatapoints", DATAPOINTS_MOST), DATAPOINTS_MOST)
        if left < 1:
            raise invalid_value(f"MaxDatapoints must be at least 1, not {left}.")
        results = []
        for query in (candidate for candidate in queries if candidate.get("ReturnData", True)):
            points = sorted(series[query["Id"]].items(), reverse=newest_first)
            shown, left = points[:left], left - min(left, len(points))
            results.append(
                {
                    "Id": query["Id"],
                    "Label": query.get("Label") or labels.get(query["Id"], query["Id"]),
                    "Timestamps": [at / 1000 for at, _ in shown],
                    "Values": [value for _, value in shown],
                    "StatusCode": "Complete" if len(shown) == len(points) else "PartialData",
                }
            )
        return {"MetricDataResults": results, "Messages": []}

    async def get_metric_statistics(self, call: Call) -> dict[str, Any]:
        """GetMetricStatistics: one metric, several statistics."""
        params = call.params
        start_at, end_at = _window(params)
        simple = [check_statistic(name) for name in params.get("Statistics", [])]
        extended = [check_statistic(name) for name in params.get("ExtendedStatistics", [])]
        if bool(simple) == bool(extended):
            raise invalid_combination("Send either Statistics or ExtendedStatistics.")
        period_s = check_period(params["Period"])
        if (end_at - start_at) / 1000 / period_s > STATISTICS_POINTS_MOST:
            raise invalid_combination(
                f"That would be more than {STATISTICS_POINTS_MOST:,} datapoints; ask for a longer period or less time."
            )
        seen = self._seen(call)
        metric = await seen.read(lambda store: _found(store, seen.view, params))
        periods = await self._periods(call, params, period_s, start_at, end_at, {})
        unit = metric.kind.unit if metric is not None else "None"
        datapoints = []
        for at, points in periods.items():
            datapoint: dict[str, Any] = {"Timestamp": at / 1000, "Unit": unit}
            datapoint |= {name: statistic(name, points) for name in simple}
            if extended:
                datapoint["ExtendedStatistics"] = {name: statistic(name, points) for name in extended}
            datapoints.append(datapoint)
        return {"Label": params["MetricName"], "Datapoints": datapoints}

    async def _periods(
        self,
        call: Call,
        metric: Mapping[str, Any],
        period_s: int,
        start_at: int,
        end_at: int,
        cache: dict[str, Recording | None],
    ) -> dict[int, list[DataPoint]]:
        """The points of a metric by period; none when nothing is measured under that name."""
        seen = self._seen(call)
        named: Named | None = await seen.read(lambda store: _found(store, seen.view, metric))
        if named is None:
            return {}
        points = await asyncio.to_thread(self._points, named, start_at, end_at, cache)
        return in_periods(points, period_s, start_at, end_at)

    def _points(
        self, metric: Named, start_at: int, end_at: int, cache: dict[str, Recording | None]
    ) -> list[DataPoint]:
        points: list[DataPoint] = []
        for attempt in metric.job.attempts:
            if attempt.placed_at >= end_at or (attempt.stopped_at or end_at) < start_at:
                continue
            if attempt.task_id not in cache:
                cache[attempt.task_id] = self._recordings(attempt.task_id)
            recording = cache[attempt.task_id]
            if recording is not None:
                points += _measured(metric, recording)
        return points


def _measured(metric: Named, recording: Recording) -> list[DataPoint]:
    kind, index = metric.kind, metric.index
    points = []
    for sample in recording.samples:
        if not isinstance(kind, GpuMetric):
            value = kind.value(sample, recording)
        elif index is not None and index < len(sample.gpus):
            value = kind.value(sample.gpus[index], recording.gpus[index])
        else:
            continue
        if not isnan(value):
            points.append(DataPoint(sample.at, value, sample.span_ms))
    return points


def _found(store: Store, view: View, metric: Mapping[str, Any]) -> Named | None:
    dimensions = {dimension["Name"]: dimension["Value"] for dimension in metric.get("Dimensions", [])}
    return find(store, view, metric.get("Namespace", ""), metric.get("MetricName", ""), dimensions)


def _is_wanted(metric: Named, params: Mapping[str, Any]) -> bool:
    kind = metric.kind
    if params.get("Namespace", kind.namespace) != kind.namespace:
        return False
    if params.get("MetricName", kind.name) != kind.name:
        return False
    own = metric.dimensions
    return all(
        dimension["Name"] in own and dimension.get("Value", own[dimension["Name"]]) == own[dimension["Name"]]
        for dimension in params.get("Dimensions", [])
    )


def _described(metric: Named) -> dict[str, Any]:
    return {
        "Namespace": metric.kind.namespace,
        "MetricName": metric.kind.name,
        "Dimensions": [{"Name": name, "Value": value} for name, value in metric.dimensions.items()],
    }


def _place(token: str | None, most: int) -> int:
    if token is None:
        return 0
    if not token.isascii() or not token.isdigit() or len(token) > 9 or not 0 < int(token) <= most:
        raise invalid_token()
    return int(token)


def _window(params: Mapping[str, Any]) -> tuple[int, int]:
    start_at, end_at = int(params["StartTime"] * 1000), int(params["EndTime"] * 1000)
    if start_at >= end_at:
        raise invalid_combination("The parameter StartTime must be less than the parameter EndTime.")
    return start_at, end_at


def _check_queries(queries: list[dict[str, Any]]) -> None:
    if not 1 <= len(queries) <= QUERIES_MOST:
        raise invalid_value(f"Send 1 to {QUERIES_MOST} MetricDataQueries, not {len(queries)}.")
    ids = [query["Id"] for query in queries]
    if len(set(ids)) != len(ids):
        raise invalid_value("Every Id in MetricDataQueries must be there once.")
    for query in queries:
        if ("MetricStat" in query) == ("Expression" in query):
            raise invalid_value(f"The query {query['Id']} must have either a MetricStat or an Expression.")


def _evaluate(queries: list[dict[str, Any]], series: dict[str, expressions.Series]) -> None:
    """Work out the expressions, each after those that it speaks of."""
    waiting = {query["Id"]: query["Expression"] for query in queries if "Expression" in query}
    while waiting:
        ready = [name for name, text in waiting.items() if not expressions.names_in(text) & waiting.keys()]
        if not ready:
            raise invalid_value(f"The expressions {', '.join(waiting)} wait for one another.")
        done = {name: expressions.evaluate(waiting.pop(name), series) for name in ready}
        series.update(done)


_PERCENTILE = re.compile(r"p(\d{1,2}(\.\d{1,10})?|100)")
_SIMPLE = ("Average", "Sum", "Minimum", "Maximum", "SampleCount")
_SHORT_PERIODS_S = (1, 5, 10, 20, 30)


@dataclass(frozen=True, slots=True)
class DataPoint:
    """One value, when it was measured, and how long before that it stands for."""

    at: int
    value: float
    span_ms: int


def check_period(period_s: int) -> int:
    """The period, if CloudWatch has such."""
    if period_s in _SHORT_PERIODS_S or (period_s > 0 and period_s % 60 == 0):
        return period_s
    raise invalid_value(f"The period must be 1, 5, 10, 20, 30 or a multiple of 60 seconds, not {period_s}.")


def check_statistic(name: str) -> str:
    """The statistic, if it is one that can be computed here."""
    if name in _SIMPLE or _PERCENTILE.fullmatch(name):
        return name
    raise invalid_value(
        f"The statistic must be one of {', '.join(_SIMPLE)} or pNN such as p99, not {name[:100]!r}."
    )


def in_periods(
    points: Iterable[DataPoint], period_s: int, start_at: int, end_at: int
) -> dict[int, list[DataPoint]]:
    """The known points of a window by the beginning of their period, oldest first."""
    length_ms = period_s * 1000
    points_by_period: dict[int, list[DataPoint]] = {}
    for point in points:
        if start_at <= point.at < end_at and not isnan(point.value):
            points_by_period.setdefault(point.at - point.at % length_ms, []).append(point)
    return dict(sorted(points_by_period.items()))


def statistic(name: str, points: Sequence[DataPoint]) -> float:
    """One statistic of the points of a period; there is at least one."""
    values = [point.value for point in points]
    if name == "Average":
        weight = fsum(max(1, point.span_ms) for point in points)
        return fsum(point.value * max(1, point.span_ms) for point in points) / weight
    if name == "Sum":
        return fsum(values)
    if name == "Minimum":
        return min(values)
    if name == "Maximum":
        return max(values)
    if name == "SampleCount":
        return float(len(values))
    # Nearest rank: one of the values that were measured.
    rank = ceil(float(name[1:]) / 100 * len(values))
    return sorted(values)[max(0, rank - 1)]
