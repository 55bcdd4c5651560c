"""What the jobs measured, as values: samples, facts and ceilings, read from the lines of their logs.

Must not know how they got here, or what they mean.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from windfall.cli.bench.suite.libraries import CPU, GPU
from windfall.cli.bench.suite.operations import BenchOperation
from windfall.cli.bench.suite.program import MARK


@dataclass(frozen=True, slots=True)
class Measurement:
    """Seconds of several calls of one operation, with one library on one device."""

    library: str
    device: str
    operation: BenchOperation
    #: `resident`, `first`, `in`, `out`, `end_to_end`, the last three also with `_pinned`.
    measure: str
    precision: str
    samples: tuple[float, ...]

    @property
    def typical_s(self) -> float:
        """The median."""
        return median(self.samples)

    @property
    def spread(self) -> float:
        """How far the samples lie apart, as a share of the median."""
        return (max(self.samples) - min(self.samples)) / self.typical_s


@dataclass(slots=True)
class Results:
    """Everything that was told, in the order in which it came."""

    measurements: list[Measurement] = field(default_factory=list)
    #: By device, library and name.
    facts: dict[tuple[str, str, str], Any] = field(default_factory=dict)
    ceilings: dict[tuple[str, str, str], float] = field(default_factory=dict)

    def read(self, lines: Iterable[str]) -> list[Measurement]:
        """Take in what lines of a log say; other lines are passed over. The answer is what was new."""
        taken: list[Measurement] = []
        for line in lines:
            if not line.startswith(MARK):
                continue
            record = json.loads(line.removeprefix(MARK))
            if "fact" in record:
                self.facts[record["device"], record["library"], record["fact"]] = record["value"]
            elif "ceiling" in record:
                self.ceilings[record["device"], record["library"], record["ceiling"]] = float(record["value"])
            else:
                taken.append(
                    Measurement(
                        record["library"],
                        record["device"],
                        BenchOperation(record["kind"], record["size"], record["batch"]),
                        record["measure"],
                        record["precision"],
                        tuple(record["samples"]),
                    )
                )
        self.measurements += taken
        return taken

    def find(
        self,
        device: str,
        operation: BenchOperation,
        measure: str,
        library: str | None = None,
        precision: str = "fp32",
    ) -> Measurement | None:
        """The measurement; of several libraries the fastest."""
        matching = [
            measurement
            for measurement in self.measurements
            if (measurement.device, measurement.operation, measurement.measure, measurement.precision)
            == (device, operation, measure, precision)
            and library in {None, measurement.library}
        ]
        return min(matching, key=lambda measurement: measurement.typical_s, default=None)

    def forget(self, device: str, library: str) -> None:
        """Leave out what a job told that then failed, perhaps because its results were wrong."""
        self.measurements = [
            measurement
            for measurement in self.measurements
            if (measurement.device, measurement.library) != (device, library)
        ]
        self.ceilings = {key: value for key, value in self.ceilings.items() if key[:2] != (device, library)}

    def gpu_libraries(self) -> list[str]:
        """Those that measured on a GPU."""
        return list(
            dict.fromkeys(
                measurement.library for measurement in self.measurements if measurement.device == GPU
            )
        )

    def ceiling(self, device: str, name: str) -> float | None:
        """The best that any library reached on the device; for fp32 also within the suite itself."""
        rates = [
            value for (where, _, which), value in self.ceilings.items() if (where, which) == (device, name)
        ]
        if name in {"fp32_flop_s", "tf32_flop_s"}:
            rates += [
                measurement.operation.flops / min(measurement.samples)
                for measurement in self.measurements
                if measurement.device == device
                and measurement.measure == "resident"
                and measurement.operation.flops
                if measurement.precision == name[:4]
            ]
        return max(rates, default=None)

    def fact(self, device: str, name: str, library: str | None = None) -> Any:
        """What the program found out, by any library or by the one that is named."""
        for (where, who, which), value in self.facts.items():
            if (where, which) == (device, name) and library in {None, who}:
                return value
        return None

    def document(self) -> dict[str, Any]:
        """All of it for JSON, every sample included."""
        return {
            "measurements": [
                {
                    "library": measurement.library,
                    "device": measurement.device,
                    "operation": measurement.operation.name,
                    "kind": measurement.operation.kind,
                    "size": measurement.operation.size,
                    "batch": measurement.operation.batch,
                    "measure": measurement.measure,
                    "precision": measurement.precision,
                    "samplesS": list(measurement.samples),
                }
                for measurement in self.measurements
            ],
            "facts": [
                {"device": device, "library": library, "name": name, "value": value}
                for (device, library, name), value in self.facts.items()
            ],
            "ceilings": [
                {"device": device, "library": library, "name": name, "value": value}
                for (device, library, name), value in self.ceilings.items()
            ],
        }


__all__ = ["CPU", "GPU", "Measurement", "Results"]
