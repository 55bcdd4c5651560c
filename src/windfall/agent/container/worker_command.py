"""What a container runs that is a warm worker: the image's and the job's own words, joined to three pipes.

The pipes are files of a directory that the container sees: no engine can be asked for a fourth descriptor, and what an
engine passes on itself arrives too late to tell one child's output from the next one's. What calls a Python function
opens them itself; for any other program a shell of the image does. Decides that, and how an image's entrypoint and
command meet the job's, as the engine has it. Imported by the keeper: the standard library alone.
"""

from __future__ import annotations

#: As typing has it: importing that would cost a keeper megabytes.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

#: Where a container sees the pipes.
PIPES_SEEN = "/run/windfall"
#: As worker/calling.py has them too.
TASKS, OUTPUT, ANSWERS = "tasks", "output", "answers"
_JOINED = f'exec "$@" <{PIPES_SEEN}/{TASKS} >{PIPES_SEEN}/{OUTPUT} 2>&1 3>{PIPES_SEEN}/{ANSWERS}'
_PYTHON = "python"


def worker_body(
    body: Mapping[str, Any], config: Mapping[str, Any], target: str, source: str
) -> dict[str, Any]:
    """Return the request for a worker's container, from the one for an ordinary container of this image."""
    entrypoint = body.get("Entrypoint", config.get("Entrypoint")) or []
    entrypoint = [entrypoint] if isinstance(entrypoint, str) else [word for word in entrypoint if word]
    command = body.get("Cmd") or []
    if not command and "Entrypoint" not in body:
        command = config.get("Cmd") or []
    words = [*entrypoint, *command]
    if target:
        words = [*interpreter(words, entrypoint), "-c", source, target, PIPES_SEEN]
    else:
        words = ["/bin/sh", "-c", _JOINED, "windfall-worker", *words]
    # With an entrypoint of its own, a container has nothing of its image's.
    return {**body, "Entrypoint": words[:1], "Cmd": words[1:]}


def interpreter(words: Sequence[str], otherwise: Sequence[str] = ()) -> list[str]:
    """Return the part of a job's command that runs its Python, e.g. `conda run -n env python`; else python3."""
    for place, word in enumerate(words):
        name = word.rpartition("/")[2]
        if name.startswith(_PYTHON) and not name[len(_PYTHON) :].strip("0123456789."):
            return list(words[: place + 1])
    return [*otherwise, "python3"]
