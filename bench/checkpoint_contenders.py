"""The training loop of bench/checkpoint_gpu.py, and the ways to save its state that are compared there."""

# ruff: noqa: SLF001 (looks inside of the library to time its parts and to wait for its buffers)

from __future__ import annotations

import os
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

STEPS = 60
SAVES = 3


def on_gpu() -> bool:
    return os.environ.get("BENCH_SMOKE") != "1"


# ------------------------------------------------------------------------------------------------- the training


def build() -> tuple[Any, Any, Any]:
    """A transformer, its optimizer and a function that does one step and waits for it."""
    import torch
    from torch import nn
    from torch.nn import functional

    width, layers, heads, words, length, batch = (
        (1536, 26, 16, 32768, 1024, 8) if on_gpu() else (64, 2, 4, 256, 32, 2)
    )

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            b, t, _ = x.shape
            q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(b, t, width))
            return x + self.down(functional.gelu(self.up(self.norm2(x))))

    class Gpt(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm = nn.LayerNorm(width)
            self.head = nn.Linear(width, words, bias=False)
            self.head.weight = self.words.weight  # tied, as usual

        def forward(self, x):
            y = self.words(x) + self.places.weight[: x.shape[1]]
            for block in self.blocks:
                y = block(y)
            return self.head(self.norm(y))

    device = "cuda" if on_gpu() else "cpu"
    torch.manual_seed(0)
    with torch.device(device):
        model = Gpt()
        tokens = torch.randint(0, words, (batch, length + 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=on_gpu() or None)

    def step() -> None:
        with torch.autocast(device, torch.bfloat16):
            logits = model(tokens[:, :-1])
            loss = functional.cross_entropy(logits.reshape(-1, words), tokens[:, 1:].reshape(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        synchronize()

    return model, optimizer, step


def synchronize() -> None:
    """Wait as a loop does that reads its loss: for the current stream, not for copies on other ones."""
    import torch

    if on_gpu():
        torch.cuda.current_stream().synchronize()


def tensors_of(model: Any, optimizer: Any) -> list[Any]:
    found = list(model.state_dict().values())
    for values in optimizer.state_dict()["state"].values():
        found += [value for value in values.values() if hasattr(value, "data_ptr")]
    return found


def state_bytes(model: Any, optimizer: Any) -> int:
    unique = {tensor.data_ptr(): tensor.nbytes for tensor in tensors_of(model, optimizer)}
    return sum(unique.values())


def fingerprint(model: Any, optimizer: Any) -> int:
    """A number that changes with any bit of the state."""
    import torch

    total = 0
    for place, tensor in enumerate(tensors_of(model, optimizer), start=1):
        total += place * int(tensor.detach().reshape(-1).view(torch.int32).to(torch.int64).sum())
    return total


# ----------------------------------------------------------------------------------------------- the contenders


class Ours:
    def __init__(self, model: Any, optimizer: Any, directory: Path, tier: str = "") -> None:
        import windfall.checkpoint as ckpt
        from windfall.checkpoint import cuda, tiers

        if tier:
            cuda.choose = lambda *_, **__: tiers.Tier(tier)
        self.run = ckpt.open(directory, every=10**9, keep=1)
        self.run.track(model=model, opt=optimizer)
        self.run.resume()

    def ready(self) -> None:
        self.run.step(1)  # takes the buffers, as the first step of any loop does
        for slot in self.run._engine.buffers._slots:
            slot.ready.wait()

    def save(self, number: int) -> Any:
        return self.run.snapshot(number).result

    def parts(self) -> dict[str, float]:
        """Milliseconds of the training thread by part, from a dry run."""
        began = time.perf_counter()
        state = self.run._state()
        flattened = time.perf_counter()
        self.run._engine._planner.fit(state)
        planned = time.perf_counter()
        return {"flatten_ms": (flattened - began) * 1e3, "plan_ms": (planned - flattened) * 1e3}

    def close(self) -> None:
        self.run.done(save=False)


class TorchSave:
    def __init__(self, model: Any, optimizer: Any, directory: Path) -> None:
        self.model, self.optimizer, self.directory = model, optimizer, directory

    def ready(self) -> None:
        self.directory.mkdir(exist_ok=True)

    def save(self, number: int) -> Any:  # noqa: ARG002 (the form of all contenders)
        import torch

        path = self.directory / "latest.pt"
        with path.with_suffix(".tmp").open("wb") as file:
            torch.save({"model": self.model.state_dict(), "opt": self.optimizer.state_dict()}, file)
            file.flush()
            os.fsync(file.fileno())
        path.with_suffix(".tmp").rename(path)
        return lambda: None

    def close(self) -> None:
        pass


class DcpAsync(TorchSave):
    def ready(self) -> None:
        import torch.distributed as dist

        super().ready()
        dist.init_process_group("gloo", init_method=f"file://{self.directory}/group", rank=0, world_size=1)

    def save(self, number: int) -> Any:
        import torch.distributed.checkpoint as dcp

        for old in self.directory.glob("save-*"):
            shutil.rmtree(old)
        state = {"model": self.model.state_dict(), "opt": self.optimizer.state_dict()}
        future = dcp.async_save(state, checkpoint_id=self.directory / f"save-{number}")
        return future.result

    def close(self) -> None:
        import torch.distributed as dist

        dist.destroy_process_group()


class TorchCheckpointing(TorchSave):
    """As its documentation has it: the update under its lock, a pool that is warmed first, buffered files."""

    def ready(self) -> None:
        from torch_checkpointing import CheckpointManager
        from torch_checkpointing.storage.filesystem import LocalFileSystemStorageConfig

        super().ready()
        storage = LocalFileSystemStorageConfig(use_direct_io=False)
        self.keeper = CheckpointManager(CheckpointManager.Config(storage_config=storage))
        update = self.optimizer.step

        def guarded() -> None:
            with self.keeper.lock():
                update()

        self.optimizer.step = guarded
        self.keeper.prewarm_staging(self._state())

    def _state(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), "opt": self.optimizer.state_dict()}

    def save(self, number: int) -> Any:
        for old in self.directory.glob("save-*"):
            shutil.rmtree(old)
        return self.keeper.save(str(self.directory / f"save-{number}"), self._state()).result

    def close(self) -> None:
        self.keeper.close()


CONTENDERS: dict[str, Any] = {
    "windfall": Ours,
    "windfall-overlap": lambda *given: Ours(*given, tier="overlap"),
    "windfall-wait": lambda *given: Ours(*given, tier="wait"),
    "torch.save": TorchSave,
    "dcp.async_save": DcpAsync,
    "torch_checkpointing": TorchCheckpointing,
}
SAVES_OF = {"torch.save": 1, "dcp.async_save": 1, "windfall-wait": 1, "windfall-overlap": 2}


def timed(step: Any) -> float:
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


def contend(name: str, directory: Path) -> dict[str, Any]:
    """Trains, saves, and compares steps with and without."""
    model, optimizer, step = build()
    for _ in range(8):
        step()
    contender = CONTENDERS[name](model, optimizer, directory)
    began = time.perf_counter()
    contender.ready()
    ready_s = time.perf_counter() - began
    plain = [timed(step) for _ in range(20 if on_gpu() else 5)]
    usual = statistics.median(plain)
    result: dict[str, Any] = {
        "state_gb": state_bytes(model, optimizer) / 1e9,
        "step_ms": usual * 1e3,
        "ready_s": ready_s,
        "saves": [],
    }
    for number in range(1, SAVES_OF.get(name, SAVES) + 2):
        began = time.perf_counter()
        wait = contender.save(number)
        synchronize()
        call_s = time.perf_counter() - began
        after = [timed(step) for _ in range(STEPS if on_gpu() else 5)]
        waited = time.perf_counter()
        wait()
        durable_s = _durable_s(contender, began)
        result["saves"].append(
            {
                "first": number == 1,
                "call_ms": call_s * 1e3,
                "stall_ms": (call_s + sum(after[:2]) - 2 * usual) * 1e3,
                "window_ms": (call_s + sum(after) - len(after) * usual) * 1e3,
                "slowest_step_ms": max(after) * 1e3,
                "slowest_step": after.index(max(after)) + 1,
                "durable_s": durable_s,
                "waited_s": time.perf_counter() - waited,
            }
        )
        step()
    if isinstance(contender, Ours):
        result["parts"] = contender.parts()
        result["tier"] = [copies.tier.value for copies in contender.run._engine._cuda.values()]
        contender.run.snapshot(99).result()
        result["fingerprint"] = fingerprint(model, optimizer)
    if on_gpu():
        import torch

        result["peak_device_gb"] = torch.cuda.max_memory_allocated() / 1e9
    contender.close()
    return result


def _durable_s(contender: Any, began: float) -> float:
    if isinstance(contender, Ours) and contender.run._saved.durable_s is not None:
        return contender.run._saved.durable_s
    return time.perf_counter() - began
