"""Results as the program would have told them, made by hand: `told(...)` is one line of a job's log."""

from __future__ import annotations

import json

from windfall.cli.bench.results import Results
from windfall.cli.bench.suite.libraries import Library
from windfall.cli.bench.suite.operations import PRODUCT, BenchOperation
from windfall.cli.bench.suite.program import MARK


def told(
    size,
    seconds,
    *,
    device="cpu",
    library="numpy",
    measure="resident",
    kind=PRODUCT,
    batch=1,
    precision="fp32",
):
    """One measurement whose samples all are `seconds`, or those given."""
    samples = list(seconds) if isinstance(seconds, tuple) else [seconds]
    return MARK + json.dumps(
        {
            "library": library,
            "device": device,
            "kind": kind,
            "size": size,
            "batch": batch,
            "measure": measure,
            "precision": precision,
            "samples": samples,
        }
    )


def on_gpu(size, resident_s, end_to_end_s=None, first_s=None, library="torch", kind=PRODUCT, batch=1):
    """What a GPU's job tells of one operation."""
    more = {"device": "gpu", "library": library, "kind": kind, "batch": batch}
    lines = [] if first_s is None else [told(size, first_s, measure="first", **more)]
    lines.append(told(size, resident_s, **more))
    if end_to_end_s is not None:
        lines.append(told(size, end_to_end_s, measure="end_to_end", **more))
    return lines


def fact(name, value, *, device="gpu", library="torch"):
    return MARK + json.dumps({"device": device, "library": library, "fact": name, "value": value})


def ceiling(name, value, *, device="gpu", library="torch"):
    return MARK + json.dumps({"device": device, "library": library, "ceiling": name, "value": value})


def results(*lines):
    read = Results()
    read.read(lines)
    return read


def product(size):
    return BenchOperation(PRODUCT, size)


class PretendedGpu(Library):
    """numpy that says it is a GPU: every array is copied on its way, so that nothing is shared by accident."""

    name = "pretended"

    def __init__(self, device="gpu"):
        super().__init__(device)
        self.tf32: list[bool] = []
        self.waited = 0

    def present(self):
        return True

    def device_facts(self):
        return {"gpu": "Pretended GPU"}

    def use_tf32(self, *, on):
        self.tf32.append(on)

    def sync(self):
        self.waited += 1

    def put(self, host):
        return host.copy()

    def get(self, array):
        return array.copy()

    def pinned(self, host):
        return host.copy()

    def put_pinned(self, pinned):
        return pinned.copy()

    def get_pinned(self, array, into):
        into[...] = array
