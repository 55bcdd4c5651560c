"""A small language model that learns to spell from this project's own pages, and survives the loss of its machine.

A character-level network (embedding, two hidden layers, Adam) in numpy, or in PyTorch on a GPU when there is one. The
only lines about interruptions are the five that use `windfall.checkpoint`. Which characters a step trains on depends on
the step's number alone, so a resumed run sees what an uninterrupted one sees, and ends with the same bits.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from pathlib import Path
from typing import Any

# One thread: sums in another order would be other sums.
for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import numpy as np  # noqa: E402 (after the number of threads is set, which it reads once)

import windfall.checkpoint  # noqa: E402 (the same)

CONTEXT, EMBEDDING, HIDDEN, BATCH = 24, 24, 384, 256
RATE, BETA1, BETA2 = 2e-3, 0.9, 0.99


class Text:
    """The training text as small integers, and the batch that belongs to a step."""

    def __init__(self, paths: list[Path]) -> None:
        text = "\n".join(path.read_text(encoding="utf-8") for path in paths).encode("ascii", "ignore")
        self.letters = sorted(set(text))
        place = {letter: index for index, letter in enumerate(self.letters)}
        self.codes = np.array([place[letter] for letter in text], dtype=np.int64)

    def batch(self, step: int) -> tuple[Any, Any]:
        """Contexts and the letters that follow them."""
        chosen = np.random.Generator(np.random.Philox(key=7, counter=step))
        starts = chosen.integers(0, len(self.codes) - CONTEXT - 1, BATCH)
        windows = starts[:, None] + np.arange(CONTEXT)[None, :]
        return self.codes[windows], self.codes[starts + CONTEXT]


def initial_weights(letters: int) -> dict[str, Any]:
    """The same weights for the same text, on any machine."""
    drawn = np.random.Generator(np.random.Philox(key=1))

    def matrix(rows: int, columns: int) -> Any:
        return (drawn.standard_normal((rows, columns)) * rows**-0.5).astype(np.float32)

    return {
        "letters": (0.1 * drawn.standard_normal((letters, EMBEDDING))).astype(np.float32),
        "first": matrix(CONTEXT * EMBEDDING, HIDDEN),
        "first_bias": np.zeros(HIDDEN, np.float32),
        "second": matrix(HIDDEN, HIDDEN),
        "second_bias": np.zeros(HIDDEN, np.float32),
        "out": matrix(HIDDEN, letters),
        "out_bias": np.zeros(letters, np.float32),
    }


class NumpyModel:
    """Forward, backward and Adam by hand."""

    def __init__(self, letters: int) -> None:
        self.weights = initial_weights(letters)
        self.first_moment = {name: np.zeros_like(w) for name, w in self.weights.items()}
        self.second_moment = {name: np.zeros_like(w) for name, w in self.weights.items()}

    def track(self, run: Any) -> None:
        """All that a resumed run needs."""
        run.track(weights=self.weights, first_moment=self.first_moment, second_moment=self.second_moment)

    def train(self, contexts: Any, targets: Any, step: int) -> float:
        """One step; the answer is the loss before it."""
        w = self.weights
        flat = w["letters"][contexts].reshape(BATCH, -1)
        one = np.tanh(flat @ w["first"] + w["first_bias"])
        two = np.tanh(one @ w["second"] + w["second_bias"])
        scores = two @ w["out"] + w["out_bias"]
        scores -= scores.max(axis=1, keepdims=True)
        likely = np.exp(scores)
        likely /= likely.sum(axis=1, keepdims=True)
        rows = np.arange(BATCH)
        loss = float(-np.log(likely[rows, targets] + 1e-9).mean())
        likely[rows, targets] -= 1.0
        likely /= BATCH
        back_two = (likely @ w["out"].T) * (1 - two * two)
        back_one = (back_two @ w["second"].T) * (1 - one * one)
        letters = np.zeros_like(w["letters"])
        np.add.at(letters, contexts, (back_one @ w["first"].T).reshape(BATCH, CONTEXT, EMBEDDING))
        gradients = {
            "letters": letters,
            "first": flat.T @ back_one,
            "first_bias": back_one.sum(axis=0),
            "second": one.T @ back_two,
            "second_bias": back_two.sum(axis=0),
            "out": two.T @ likely,
            "out_bias": likely.sum(axis=0),
        }
        for name, gradient in gradients.items():
            self._adam(name, gradient, step)
        return loss

    def _adam(self, name: str, gradient: Any, step: int) -> None:
        first, second = self.first_moment[name], self.second_moment[name]
        first *= BETA1
        first += (1 - BETA1) * gradient
        second *= BETA2
        second += (1 - BETA2) * gradient * gradient
        scale = np.float32(RATE * (1 - BETA2**step) ** 0.5 / (1 - BETA1**step))
        self.weights[name] -= scale * first / (np.sqrt(second) + np.float32(1e-8))

    def digest(self) -> str:
        """What two equal runs have in common."""
        parts = b"".join(self.weights[name].tobytes() for name in sorted(self.weights))
        return hashlib.sha256(parts).hexdigest()


class TorchModel:
    """The same network on a GPU."""

    def __init__(self, letters: int, torch: Any) -> None:
        torch.use_deterministic_algorithms(mode=True)
        self.torch = torch
        self.weights = {
            name: torch.nn.Parameter(torch.from_numpy(w).cuda())
            for name, w in initial_weights(letters).items()
        }
        self.optimizer = torch.optim.Adam(self.weights.values(), lr=RATE, betas=(BETA1, BETA2))

    def track(self, run: Any) -> None:
        """All that a resumed run needs."""
        run.track(weights={name: w.data for name, w in self.weights.items()}, optimizer=self.optimizer)

    def train(self, contexts: Any, targets: Any, _step: int) -> float:
        """One step; the answer is the loss before it."""
        torch, w = self.torch, self.weights
        flat = torch.nn.functional.embedding(torch.from_numpy(contexts).cuda(), w["letters"]).flatten(1)
        one = torch.tanh(flat @ w["first"] + w["first_bias"])
        two = torch.tanh(one @ w["second"] + w["second_bias"])
        loss = torch.nn.functional.cross_entropy(
            two @ w["out"] + w["out_bias"], torch.from_numpy(targets).cuda()
        )
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

    def digest(self) -> str:
        """What two equal runs have in common."""
        parts = b"".join(self.weights[name].detach().cpu().numpy().tobytes() for name in sorted(self.weights))
        return hashlib.sha256(parts).hexdigest()


def a_model(letters: int) -> NumpyModel | TorchModel:
    """On the GPU that the job was given, else on the CPU."""
    if os.environ.get("CUDA_VISIBLE_DEVICES"):
        try:
            import torch
        except ImportError:
            return NumpyModel(letters)
        if torch.cuda.is_available():
            return TorchModel(letters, torch)
    return NumpyModel(letters)


def main() -> None:
    """Train for as many steps as the first argument says, on the files that follow."""
    steps, text = int(sys.argv[1]), Text([Path(name) for name in sys.argv[2:]])
    model = a_model(len(text.letters))

    run = windfall.checkpoint.open(every="3s")
    model.track(run)
    first = run.resume()
    print(f"training from step {first} with {type(model).__name__}", flush=True)
    # A fast machine would be done before the show is over.
    pace_s = float(os.environ.get("PACE_S", "0"))
    for step in range(first + 1, steps + 1):
        begun = time.monotonic()
        loss = model.train(*text.batch(step), step)
        time.sleep(max(0.0, begun + pace_s - time.monotonic()))
        if step % 20 == 0:
            print(f"step {step} loss {loss:.4f}", flush=True)
        run.step(step, loss=loss)
    run.done()
    print(f"weights sha256 {model.digest()}", flush=True)


if __name__ == "__main__":
    main()
