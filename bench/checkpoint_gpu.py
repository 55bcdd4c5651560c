"""What a save costs a training loop on a GPU, beside torch.save, DCP's async_save and torch_checkpointing.

    python -m bench.checkpoint_gpu [--json FILE] [--only NAME ...] [--directory DIR] [--smoke]

A GPT-like transformer of about 780 M parameters with AdamW: 9.3 GB of state. Each contender runs in a process of
its own with a time limit, so that one failure does not lose the others. A stall is what a save adds to the loop: the
time of the call, and what the steps after it took longer than the median of steps without a save. Steps are
synchronised one by one, which shows every microsecond that a loop running ahead of the device would hide.
`--smoke`: all of it, tiny, on the CPU. `--only windfall-wait copies` asks what is not asked by default.
"""

# ruff: noqa: SLF001 (forces tiers and times copies inside of the library)

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from bench.checkpoint_contenders import (  # noqa: E402 (found only after the line above, when run as a file)
    CONTENDERS,
    Ours,
    build,
    contend,
    fingerprint,
    on_gpu,
    synchronize,
    tensors_of,
)

# ---------------------------------------------------------------------------------------------- other questions


def disk(directory: Path) -> dict[str, Any]:
    """Bytes a second that reach the disk from memory, as fast as simple means allow."""
    size = (8 << 30) if on_gpu() else (64 << 20)
    piece = memoryview(bytearray(os.urandom(1 << 20)) * 32)
    found = {}
    directory.mkdir(exist_ok=True)
    for threads in (1, 8):
        path = directory / "raw"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        began = time.perf_counter()
        with ThreadPoolExecutor(threads) as pool:
            write = functools.partial(os.pwrite, descriptor, piece)
            list(pool.map(write, range(0, size, len(piece))))
        os.fsync(descriptor)
        found[f"write_gb_s_{threads}"] = size / (time.perf_counter() - began) / 1e9
        os.close(descriptor)
        path.unlink()
    return found


def restore(directory: Path) -> dict[str, Any]:
    """From the start of a process to the end of its first step, with the checkpoint that `windfall` left."""
    began = time.perf_counter()
    model, optimizer, step = build()
    synchronize()
    built = time.perf_counter()
    contender = Ours(model, optimizer, directory)  # resumes
    synchronize()
    resumed = time.perf_counter()
    print_now = fingerprint(model, optimizer)
    checked = time.perf_counter()
    step()
    stepped = time.perf_counter()
    contender.close()
    return {
        "build_s": built - began,
        "resume_s": resumed - built,
        "first_step_s": stepped - checked,
        "resume_to_first_step_s": resumed - built + stepped - checked,
        "fingerprint": print_now,
    }


def torn(directory: Path) -> dict[str, Any]:
    """Saves while updates are queued on both sides of the save; each leaf must hold exactly the step saved."""
    import torch

    import windfall.checkpoint as ckpt
    from windfall.checkpoint import cuda, reading, tiers

    device = "cuda" if on_gpu() else "cpu"
    rounds, wrong = 0, 0
    for tier in ("clone", "overlap", "wait"):
        cuda.choose = lambda *_, tier=tier, **__: tiers.Tier(tier)
        size = 8_000_000 if on_gpu() else 80_000
        weights = [torch.zeros(size + 1000 * n, device=device, requires_grad=True) for n in range(64)]
        for weight in weights:
            weight.grad = torch.full_like(weight, -1.0)
        optimizer = torch.optim.SGD(weights, lr=1.0)
        place = directory / tier
        run = ckpt.open(place, every=10**9, keep=2)
        run.track(weights={str(n): w for n, w in enumerate(weights)}, opt=optimizer)
        run.resume()
        for number in range(1, 4):
            if on_gpu():
                torch.cuda._sleep(200_000_000)  # the update below is still waiting when the save is taken
            optimizer.step()
            saved = run.snapshot(number)
            optimizer.step()
            path = saved.result()
            found = reading.read_manifest(path)
            image = memoryview(bytearray(found.size))
            reading.read_image(path, found, image)
            expected = float(2 * number - 1)
            for name, extent in found.leaves.items():
                if name.startswith("weights/"):
                    flat = torch.frombuffer(
                        image[extent.offset : extent.offset + extent.nbytes], dtype=torch.float32
                    )
                    rounds += 1
                    wrong += int(not bool((flat == expected).all()))
        run.done(save=False)
        shutil.rmtree(place)
    return {"leaves_compared": rounds, "torn": wrong}


def lane(directory: Path, kills: int, seed: int) -> dict[str, Any]:
    """Forks trainers, kills each with SIGKILL at a random moment, and has the next one verify what it finds."""
    import torch  # noqa: F401 (imported before the fork, so that a child only has to open the device)

    draw = random.Random(seed)
    steps, bad = [], 0
    for _ in range(kills + 1):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            try:
                victim(directory, writer)
            finally:
                os._exit(70)
        os.close(writer)
        with os.fdopen(reader) as lines:
            first = lines.readline().split()
            if first[:1] != ["resumed"]:
                bad += 1
            else:
                steps.append(int(first[1]))
            time.sleep(draw.uniform(0.05, 1.2))
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    bad += sum(later < earlier for earlier, later in itertools.pairwise(steps))
    return {"kills": kills, "bad": bad, "resumed_at": steps}


def victim(directory: Path, tell: int) -> None:
    """All elements of all tensors equal the step, so that a mixture of two steps shows itself."""
    import torch

    import windfall.checkpoint as ckpt

    device = "cuda" if on_gpu() else "cpu"
    size = 3_000_000 if on_gpu() else 20_000
    state = {str(n): torch.zeros(size, device=device) for n in range(16)}
    run = ckpt.open(directory, every=1, keep=2)
    run.track(state=state)
    step = run.resume()
    right = all(bool((tensor == step).all()) for tensor in state.values())
    os.write(tell, f"{'resumed' if right else 'wrong'} {step}\n".encode())
    while True:
        for tensor in state.values():
            tensor.add_(1.0)
        step += 1
        run.step(step)


def copies(_: Path) -> dict[str, Any]:
    """Milliseconds on the device and on the host for ways to clone the state; explains the choice in cuda.py."""
    if not on_gpu():
        return {}
    import torch

    from windfall.checkpoint import cuda

    model, optimizer, step = build()
    step()
    sources = [tensor.detach() for tensor in tensors_of(model, optimizer)]
    targets = [torch.empty_like(source) for source in sources]
    worker = cuda.CudaCopies(torch, "cuda:0")
    found = {}
    for below_mib in (0, 8, 64, 1 << 20):
        cuda.FUSE_BELOW_BYTES = below_mib << 20
        for _ in range(3):
            began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            host = time.perf_counter()
            began.record()
            worker._copy_all(targets, sources)
            ended.record()
            host = time.perf_counter() - host
            torch.cuda.synchronize()
            found[f"fuse_below_{below_mib}_mib"] = [began.elapsed_time(ended), host * 1e3]
    return found


QUESTIONS = {"disk": disk, "restore": restore, "torn": torn, "copies": copies}


# ------------------------------------------------------------------------------------------------------- running


def ask(name: str, directory: Path, limit_s: float, *more: str) -> dict[str, Any]:
    """One question in a process of its own."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
    }
    began = time.perf_counter()
    try:
        outcome = subprocess.run(
            [sys.executable, __file__, "--ask", name, "--directory", str(directory), *more],
            env=environment,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"no answer after {limit_s:g} s"}
    lines = outcome.stdout.strip().splitlines()
    if outcome.returncode != 0 or not lines:
        return {"error": outcome.stderr.strip()[-1500:] or f"exit code {outcome.returncode}"}
    return {**json.loads(lines[-1]), "took_s": time.perf_counter() - began}


def answer(name: str, directory: Path, seed: int) -> dict[str, Any]:
    if name in CONTENDERS:
        return contend(name, directory)
    if name == "kills":
        return lane(directory, 17 if on_gpu() else 3, seed)
    return QUESTIONS[name](directory)


def forget_files() -> bool:
    """Empties the kernel's cache of files, so that a restore really reads the disk; only on a machine of its own."""
    if not on_gpu():
        return False
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3")
    except OSError:
        return False
    return True


def show(results: dict[str, Any]) -> None:
    """The table, and the rest in words."""
    print(
        f"{'contender':22}{'stall ms':>10}{'call ms':>10}{'window ms':>11}{'durable s':>11}{'first ms':>10}"
    )
    for name in CONTENDERS:
        result = results.get(name)
        if result is None:
            continue
        if "error" in result:
            print(f"{name:22}  {result['error'].splitlines()[-1]}")
            continue
        later = [save for save in result["saves"] if not save["first"]]
        cells = [
            statistics.median(save[key] for save in later) for key in ("stall_ms", "call_ms", "window_ms")
        ]
        cells += [statistics.median(save["durable_s"] for save in later), result["saves"][0]["stall_ms"]]
        print(
            f"{name:22}"
            + "".join(f"{cell:>{w}.1f}" for cell, w in zip(cells, (10, 10, 11, 11, 10), strict=True))
        )
    for name in ("disk", "restore", "restore-cold", "torn", "kills", "copies"):
        if name in results:
            print(f"{name}: {results[name]}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--ask")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if given.smoke:
        os.environ["BENCH_SMOKE"] = "1"
    if given.ask:
        print(json.dumps(answer(given.ask, given.directory, given.seed)), flush=True)
        return
    root = Path(tempfile.mkdtemp(prefix="windfall-checkpoint-", dir=given.directory))
    usual = [name for name in CONTENDERS if name != "windfall-wait"]
    wanted = given.only or ["disk", *usual, "torn", "kills"]
    results: dict[str, Any] = {}
    try:
        for name in wanted:
            place = root / name
            if name == "kills":
                with ThreadPoolExecutor(3) as lanes:
                    parts = list(
                        lanes.map(
                            lambda n: ask("kills", root / f"kills-{n}", 150, "--seed", str(n)), range(3)
                        )
                    )
                results[name] = {"lanes": parts, "bad": sum(part.get("bad", 99) for part in parts)}
            else:
                results[name] = ask(name, place, 120)
            print(name, json.dumps(results[name]), flush=True)
            if name == "windfall" and "error" not in results[name]:
                results["restore"] = ask("restore", place, 90)
                if forget_files():
                    results["restore-cold"] = ask("restore", place, 90)
                for kind in [kind for kind in ("restore", "restore-cold") if kind in results]:
                    same = results[kind].get("fingerprint") == results[name]["fingerprint"]
                    results[kind]["same_bits"] = same
            shutil.rmtree(place, ignore_errors=True)
            if given.json:
                given.json.write_text(json.dumps(results, indent=1))
    finally:
        shutil.rmtree(root, ignore_errors=True)
    show(results)


if __name__ == "__main__":
    main()
