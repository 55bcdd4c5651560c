"""Commits rounds until it is killed, and prints the number of each one that was acknowledged.

Every round changes all of a few jobs, adds some, and notes a log stream: a half-written one would be seen.
"""

from __future__ import annotations

import sys

from tests.conformance.store_builders import NOW, a_job, a_round, a_stream
from windfall.jobs.states import RUNNING
from windfall.store.opening import open_store

CHANGED, ADDED = 20, 5


def main(url: str) -> None:
    store = open_store(url)
    changed = [a_job(RUNNING, id=f"changed-{n}", at=NOW) for n in range(CHANGED)]
    number = 0
    while True:
        number += 1
        for job in changed:
            job.status_reason = str(number)
        added = [
            a_job(id=f"added-{number}-{n}", at=NOW + number, name=f"round-{number}") for n in range(ADDED)
        ]
        store.commit(a_round(*changed, *added, streams=(a_stream(added[0]),)))
        print(number, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
