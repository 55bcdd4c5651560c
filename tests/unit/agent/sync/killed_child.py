"""A process that syncs or restores and kills itself at a named stage: `python killed_child.py '{...}'`."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading

from windfall.agent.sync import CheckpointSync
from windfall.agent.sync.clocks import Clocks
from windfall.objects.opening import open_objects


def main(order: dict) -> None:
    left = [order["count"]]
    lock = threading.Lock()

    def stage(name: str) -> None:
        if name == order["stage"]:
            with lock:
                left[0] -= 1
                if left[0] <= 0:
                    os.kill(os.getpid(), signal.SIGKILL)

    sync = CheckpointSync(
        open_objects(order["uri"]),
        order["directory"],
        order["fence"],
        publish=True,
        chunk_bytes=order["chunk_bytes"],
        keep=order["keep"],
        stage=stage,
    )
    if order["work"] == "restore":
        sync.restore(deadline=Clocks().monotonic() + 60)
    else:
        sync.flush(Clocks().monotonic() + 60)


main(json.loads(sys.argv[1]))
