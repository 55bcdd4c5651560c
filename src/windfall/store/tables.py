"""The tables as both databases have them, and the statements that write their rows.

The columns here and those of the migrations must agree; the conformance suite would notice. Knows nothing of
what the rows mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

#: One row, its values in the order of the table's columns.
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Table:
    """A table with a key, and which of its columns an existing row may have changed."""

    name: str
    #: Column -> "text" or "bigint", in the order in which rows give their values.
    columns: dict[str, str]
    key: tuple[str, ...]
    #: Only these are written again, so that indexes over other columns are left alone.
    changing: tuple[str, ...]

    @cached_property
    def named(self) -> str:
        """The columns, for a statement."""
        return ", ".join(self.columns)

    @cached_property
    def on_conflict(self) -> str:
        """What becomes of a row that is already there."""
        changes = ", ".join(f"{column} = excluded.{column}" for column in self.changing)
        return f"ON CONFLICT ({', '.join(self.key)}) DO UPDATE SET {changes}"


def _by(key: str, name: str) -> Table:
    return Table(name, {key: "text", "record": "text"}, (key,), ("record",))


ENVIRONMENTS = _by("name", "environments")
QUEUES = _by("name", "queues")
IMAGES = _by("pattern", "images")
INSTANCES = _by("id", "instances")
MACHINES = _by("id", "machines")
DEFINITIONS = Table(
    "definitions",
    {"name": "text", "revision": "bigint", "active": "bigint", "record": "text"},
    ("name", "revision"),
    ("active", "record"),
)
#: A child's queue, name, definition and submission are NULL: they are its parent's. The queue of a job of another
#: tenant than `default` is `<tenant>/<queue>`: every index that begins with the queue serves one tenant then.
JOBS = Table(
    "jobs",
    {
        "id": "text",
        "parent": "text",
        "child_index": "bigint",
        "queue": "text",
        "name": "text",
        "name_folded": "text",
        "definition": "text",
        "created_at": "bigint",
        "state": "text",
        "stopped_at": "bigint",
        "ord": "bigint",
        "consumables": "text",
        "share": "text",
        "record": "text",
        "submission": "text",
    },
    ("id",),
    ("state", "stopped_at", "ord", "record", "submission"),
)
DECLARATIONS = Table(
    "declarations", {"kind": "text", "name": "text", "record": "text"}, ("kind", "name"), ("record",)
)
SERVICE_JOBS = Table(
    "service_jobs",
    {
        "id": "text",
        "queue": "text",
        "created_at": "bigint",
        "state": "text",
        "stopped_at": "bigint",
        "record": "text",
    },
    ("id",),
    ("state", "stopped_at", "record"),
)
OUTBOX = Table(
    "outbox",
    {"destination": "text", "id": "text", "subject": "text", "record": "text"},
    ("destination", "id"),
    ("record",),
)
TICKS = Table(
    "ticks",
    {"schedule": "text", "due_at": "bigint", "undone": "bigint", "record": "text"},
    ("schedule", "due_at"),
    ("undone", "record"),
)
#: Commands of daemons that do not lead; only PostgreSQL has them. A row is there when its reply is written.
INBOX = Table("inbox", {"id": "text", "reply": "text"}, ("id",), ("reply",))
LOG_STREAMS = Table(
    "log_streams",
    {"log_group": "text", "name": "text", "task_id": "text", "job_id": "text", "created_at": "bigint"},
    ("log_group", "name"),
    ("task_id", "job_id", "created_at"),
)
