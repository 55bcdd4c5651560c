"""What hosts of a training job of these tests run: they add up their parts of the data by name, and each leaves its own
parts of checkpoints and model behind.
"""

import argparse
import json
import os
import pathlib
import signal
import socket
import sys
import threading

PORT = 7411
ML = pathlib.Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"))


def connect(host: str) -> socket.socket:
    """A connection to the first host, which may not listen yet."""
    while True:
        try:
            return socket.create_connection((host, PORT), timeout=120)
        except OSError:
            threading.Event().wait(0.05)


def reduced(own: int, config: dict) -> int:
    """The sum over all hosts: the first one adds up, and tells the others."""
    first, others = config["hosts"][0], config["hosts"][1:]
    if config["current_host"] != first:
        with connect(first) as line:
            line.sendall(f"{own}\n".encode())
            return int(line.makefile().readline())
    with socket.create_server((first, PORT)) as server:
        server.settimeout(60)
        lines = [server.accept()[0] for _ in others]
        total = own + sum(int(line.makefile().readline()) for line in lines)
        for line in lines:
            line.sendall(f"{total}\n".encode())
            line.close()
    return total


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--wait", type=int, default=0)
    parser.add_argument("--fails", default="")
    given = parser.parse_args()
    config = json.loads((ML / "input/config/resourceconfig.json").read_text())
    me = config["current_host"]
    assert os.environ["SM_CURRENT_HOST"] == me
    assert json.loads(os.environ["SM_HOSTS"]) == config["hosts"]
    if given.fails:
        if me == given.fails:
            (ML / "output/failure").write_text(f"{me} has had enough")
            sys.exit(3)
        signal.pause()
    kept = ML / "checkpoints"
    restored = sorted(path.name for path in kept.iterdir()) if kept.exists() else []
    files = sorted((ML / "input/data/training").iterdir())
    own = sum(int(line) for path in files for line in path.read_text().split())
    total = reduced(own, config)
    print(f"{me} has {[path.name for path in files]} and restored {restored}; loss={total};", flush=True)
    if given.wait and not restored:
        # Each host keeps files of its own; it goes on when it is interrupted, and is done when it is back.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        (kept / f"{me}.txt").write_text(str(total))
        signal.pause()
    (ML / f"model/{me}.txt").write_text(f"{total} of {me}")
    (ML / "model/common").mkdir()
    (ML / f"model/common/{me}.txt").write_text(me)


if __name__ == "__main__":
    main()
