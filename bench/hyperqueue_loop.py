"""Tasks per second of HyperQueue on this machine: `true` with a log file of its own, as the bare loop has it.

    python hyperqueue_loop.py TASKS_AT_ONCE TASKS DIRECTORY

Runs under a Python that has HyperQueue and nothing of ours. Its journal is off, which is its default.
"""

from __future__ import annotations

import sys
import tempfile
import time

# It is not among our dependencies: a user who wants to compare installs it.
from hyperqueue import Job, LocalCluster  # type: ignore[import-not-found] (see above)
from hyperqueue.cluster import WorkerConfig  # type: ignore[import-not-found] (see above)


def main(at_once: int, count: int, directory: str) -> None:
    """Print the tasks per second of one job, after a small one that warms the worker up."""
    logs = tempfile.mkdtemp(prefix="hyperqueue-", dir=directory)
    with LocalCluster() as cluster:
        cluster.start_worker(WorkerConfig(cores=at_once))
        client = cluster.client()
        for number, tasks in enumerate((50, count)):
            job = Job()
            for task in range(tasks):
                job.program(["/bin/true"], stdout=f"{logs}/{number}-{task}.log", stderr=None)
            begin = time.perf_counter()
            client.wait_for_jobs([client.submit(job)])
            rate = tasks / (time.perf_counter() - begin)
    print(rate)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
