"""A torch with one imaginary CUDA device: it copies nothing at once, but keeps queues, so that order can be proved.

Work queued on a stream happens when somebody waits for that stream, in the stream's order, and after the events that
it waits for. A copy that is not ordered behind what it needs therefore reads old bytes, as on a real device.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any


class Stream:
    def __init__(self, device: object = None) -> None:
        self.queue: list[Callable[[], None]] = []

    def add(self, work: Callable[[], None]) -> None:
        self.queue.append(work)

    def synchronize(self) -> None:
        while self.queue:
            self.queue.pop(0)()

    def wait_event(self, event: Event) -> None:
        self.add(event.happen)


class Event:
    def __init__(self, enable_timing: bool = False) -> None:
        self.stream: Stream | None = None
        self.before: list[Callable[[], None]] = []

    def record(self, stream: Stream) -> None:
        """Everything that is queued on the stream now has to happen before whoever waits for this goes on."""
        self.stream = stream
        self.mark = len(stream.queue)
        self.left = list(stream.queue)

    def happen(self) -> None:
        assert self.stream is not None, "an event was waited for before it was recorded"
        while self.left and self.stream.queue and self.left[0] is self.stream.queue[0]:
            self.left.pop(0)
            self.stream.queue.pop(0)()

    def elapsed_time(self, other: Event) -> float:
        return 5.0


class Tensor:
    """Bytes with an offset; on the device unless told otherwise."""

    def __init__(self, torch: FakeTorch, memory: memoryview) -> None:
        self.torch, self.memory = torch, memory
        self.dtype, self.shape, self.nbytes = "uint8", (len(memory),), len(memory)
        self.device = "cuda:0"

    def __getitem__(self, part: slice) -> Tensor:
        return Tensor(self.torch, self.memory[part])

    def view(self, *_: object) -> Tensor:
        return self

    detach = contiguous = reshape = view

    def numel(self) -> int:
        return len(self.memory)

    def data_ptr(self) -> int:
        return id(self.memory.obj)

    def stride(self) -> tuple[int, ...]:
        return (1,)

    def is_contiguous(self) -> bool:
        return True

    def is_complex(self) -> bool:
        return False

    def clone(self) -> Tensor:
        twin = Tensor(self.torch, memoryview(bytearray(len(self.memory))))
        twin.copy_(self)
        return twin

    def copy_(self, source: Tensor, non_blocking: bool = False) -> None:
        self.torch.current.add(lambda: self._take(source))

    def _take(self, source: Tensor) -> None:
        self.memory[:] = source.memory

    def fill(self, value: int) -> None:
        """An update by the training loop: queued like any kernel."""
        self.torch.current.add(lambda: self._set(value))

    def _set(self, value: int) -> None:
        self.memory[:] = bytes([value]) * len(self.memory)


class Optimizer:
    """Its step calls the hooks first, as torch's does."""

    def __init__(self, params: list[Tensor]) -> None:
        self.param_groups = [{"params": params}]
        self.state: dict[Any, dict[str, Any]] = {}
        self.hooks: list[Callable[..., None]] = []

    def register_step_pre_hook(self, hook: Callable[..., None]) -> SimpleNamespace:
        self.hooks.append(hook)
        return SimpleNamespace(remove=lambda: self.hooks.remove(hook))

    def step(self, value: int) -> None:
        for hook in self.hooks:
            hook(self, (), {})
        for tensor in self.param_groups[0]["params"]:
            tensor.fill(value)


class FakeTorch:
    """The parts of torch that windfall.checkpoint.cuda touches."""

    uint8 = "uint8"
    OutOfMemoryError = MemoryError

    def __init__(self, free_bytes: int) -> None:
        self.compute = Stream()
        self._of_thread = threading.local()
        self.cuda = SimpleNamespace(
            Stream=Stream,
            Event=Event,
            current_stream=lambda _: self.current,
            stream=self._on,
            device=lambda _: contextlib.nullcontext(),
            mem_get_info=lambda _: (free_bytes, 1 << 30),
            cudart=lambda: SimpleNamespace(cudaHostRegister=lambda *_: 1),
        )

    @property
    def current(self) -> Stream:
        """Each thread has a current stream of its own, as in torch."""
        return getattr(self._of_thread, "stream", self.compute)

    @contextlib.contextmanager
    def _on(self, stream: Stream) -> Iterator[None]:
        before, self._of_thread.stream = self.current, stream
        try:
            yield
        finally:
            self._of_thread.stream = before

    def device(self, name: str) -> str:
        return name

    def no_grad(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def empty(self, size: int, **_: object) -> Tensor:
        return Tensor(self, memoryview(bytearray(size)))

    def frombuffer(self, buffer: memoryview, dtype: str) -> Tensor:
        return Tensor(self, buffer)

    def _foreach_copy_(self, targets: list[Tensor], sources: list[Tensor]) -> None:
        for target, source in zip(targets, sources, strict=True):
            target.copy_(source)
