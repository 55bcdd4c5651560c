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
from windfall.cli.bench.suite.operations import Operation
from windfall.cli.bench.suite.program import MARK


@dataclass(frozen=True, slots=True)
class Measurement:
    """Seconds of several calls of one operation, with one library on one device."""

    library: str
    device: str
    operation: Operation
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
            told = json.loads(line.removeprefix(MARK))
            if "fact" in told:
                self.facts[told["device"], told["library"], told["fact"]] = told["value"]
            elif "ceiling" in told:
                self.ceilings[told["device"], told["library"], told["ceiling"]] = float(told["value"])
            else:
                taken.append(
                    Measurement(
                        told["library"],
                        told["device"],
                        Operation(told["kind"], told["size"], told["batch"]),
                        told["measure"],
                        told["precision"],
                        tuple(told["samples"]),
                    )
                )
        self.measurements += taken
        return taken

    def find(
        self,
        device: str,
        operation: Operation,
        measure: str,
        library: str | None = None,
        precision: str = "fp32",
    ) -> Measurement | None:
        """The measurement; of several libraries the fastest."""
        found = [
            one
            for one in self.measurements
            if (one.device, one.operation, one.measure, one.precision)
            == (device, operation, measure, precision)
            and library in {None, one.library}
        ]
        return min(found, key=lambda one: one.typical_s, default=None)

    def forget(self, device: str, library: str) -> None:
        """Leave out what a job told that then failed, perhaps because its results were wrong."""
        self.measurements = [
            one for one in self.measurements if (one.device, one.library) != (device, library)
        ]
        self.ceilings = {key: value for key, value in self.ceilings.items() if key[:2] != (device, library)}

    def gpu_libraries(self) -> list[str]:
        """Those that measured on a GPU."""
        return list(dict.fromkeys(one.library for one in self.measurements if one.device == GPU))

    def ceiling(self, device: str, name: str) -> float | None:
        """The best that any library reached on the device; for fp32 also within the suite itself."""
        rates = [
            value for (where, _, which), value in self.ceilings.items() if (where, which) == (device, name)
        ]
        if name in {"fp32_flop_s", "tf32_flop_s"}:
            rates += [
                one.operation.flops / min(one.samples)
                for one in self.measurements
                if one.device == device and one.measure == "resident" and one.operation.flops
                if one.precision == name[:4]
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
                    "library": one.library,
                    "device": one.device,
                    "operation": one.operation.name,
                    "kind": one.operation.kind,
                    "size": one.operation.size,
                    "batch": one.operation.batch,
                    "measure": one.measure,
                    "precision": one.precision,
                    "samplesS": list(one.samples),
                }
                for one in self.measurements
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
