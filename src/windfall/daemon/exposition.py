"""Prometheus's text format: families of samples with labels. Decides escaping and order; must not know any metric."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isnan

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
_IN_LABEL = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_IN_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})


@dataclass(slots=True)
class Family:
    """All samples of one name."""

    name: str
    #: gauge or counter.
    kind: str
    help: str
    samples: list[tuple[Mapping[str, str], float]] = field(default_factory=list)

    def add(self, value: float | None, **labels: str | None) -> None:
        """Add a sample; an unknown value is left out, as is a label without a value."""
        if value is None or isnan(value):
            return
        self.samples.append(({name: text for name, text in labels.items() if text is not None}, float(value)))


def rendered(families: Iterable[Family]) -> bytes:
    """The families that have a sample, as text."""
    lines: list[str] = []
    for family in families:
        if not family.samples:
            continue
        lines.append(f"# HELP {family.name} {family.help.translate(_IN_HELP)}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        lines += [f"{family.name}{_labels(labels)} {_number(value)}" for labels, value in family.samples]
    return ("\n".join(lines) + "\n").encode("utf-8", "replace")


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{text.translate(_IN_LABEL)}"' for name, text in labels.items()) + "}"


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
