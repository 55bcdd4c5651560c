"""What the acceptance tests train: pure Python, saves every step, resumes, and leaves when it is given notice."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import sys
import threading
from pathlib import Path


def main() -> None:
    """Add up the numbers of the channel `training`, one a step."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--pause", type=float, default=0.1)
    parser.add_argument("--fail", default="")
    parser.add_argument("--needs", default="")
    options = parser.parse_args()
    if options.fail:
        Path(os.environ["SM_OUTPUT_DIR"], "failure").write_text(options.fail)
        sys.exit(3)
    if options.needs:
        importlib.import_module(options.needs)
    leave = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: leave.set())
    kept = os.environ.get("WINDFALL_CHECKPOINT_DIR")
    path = Path(kept, "state.json") if kept else None
    state = {"done": [], "sum": 0, "starts": []}
    if path and path.exists():
        state = json.loads(path.read_text())
    state["starts"].append(len(state["done"]))
    numbers = [
        int(line)
        for file in sorted(Path(os.environ["SM_CHANNEL_TRAINING"]).iterdir())
        for line in file.read_text().splitlines()
    ]
    for step in range(len(state["done"]), options.steps):
        leave.wait(options.pause)
        state["sum"] += numbers[step % len(numbers)]
        state["done"].append(step)
        print(f"step {step} loss={1 / (step + 1):.6f};", flush=True)
        if path:
            half = path.with_name("state.json.tmp")
            half.write_text(json.dumps(state))
            half.rename(path)
        if leave.is_set():
            print("leaving", flush=True)
            sys.exit(143)
    Path(os.environ["SM_MODEL_DIR"], "model.json").write_text(json.dumps(state))
    Path(os.environ["SM_OUTPUT_DATA_DIR"], "note.txt").write_text(os.environ["TRAINING_JOB_NAME"])


if __name__ == "__main__":
    main()
