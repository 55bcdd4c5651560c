# ruff: noqa: N802 - the names are NVML's own
"""Answers like the module pynvml, for devices that a test describes."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any


@dataclass
class Board:
    """One GPU, or one MIG slice of one. What is None is not supported."""

    uuid: str
    name: str = "NVIDIA H200"
    memory_bytes: int = 143_771 << 20
    capability: tuple[int, int] = (9, 0)
    slices: list[Board] | None = None
    errors: dict[int, int] | None = field(default_factory=lambda: {0: 0, 1: 0})
    remapped: tuple[int, int, int, int] | None = (0, 0, 0, 0)
    recovery: int | None = 0
    reasons: int = 0
    compute_mode: int = 0
    #: Fails every question with this code.
    trouble: int | None = None


class FakeNvml:
    """The part of NVML that Windfall asks."""

    NVML_ERROR_NOT_SUPPORTED = 3
    NVML_ERROR_TIMEOUT = 10
    NVML_ERROR_GPU_IS_LOST = 15
    NVML_ERROR_RESET_REQUIRED = 16
    NVML_VOLATILE_ECC = 0
    NVML_MEMORY_ERROR_TYPE_CORRECTED = 0
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
    NVML_TEMPERATURE_GPU = 0
    NVML_TEMPERATURE_THRESHOLD_SHUTDOWN = 0

    class NVMLError(Exception):
        def __init__(self, value: int) -> None:
            super().__init__(f"NVML error {value}")
            self.value = value

    def __init__(self, *boards: Board) -> None:
        self.boards = list(boards)
        #: What whole calls fail with.
        self.trouble: int | None = None
        self.events: list[tuple[Board, int]] = []
        self.registered: list[str] = []
        self.begun = 0

    def _look(self, board: Board, answer: Any) -> Any:
        if board.trouble is not None:
            raise self.NVMLError(board.trouble)
        if answer is None:
            raise self.NVMLError(self.NVML_ERROR_NOT_SUPPORTED)
        return answer

    def nvmlInit(self) -> None:
        self.begun += 1

    def nvmlShutdown(self) -> None:
        self.registered.clear()

    def nvmlDeviceGetCount(self) -> int:
        if self.trouble is not None:
            raise self.NVMLError(self.trouble)
        return len(self.boards)

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"580.159.03"

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Board:
        return self.boards[index]

    def nvmlDeviceGetUUID(self, board: Board) -> str:
        return self._look(board, board.uuid)

    def nvmlDeviceGetName(self, board: Board) -> str:
        return self._look(board, board.name)

    def nvmlDeviceGetPciInfo(self, board: Board) -> Any:
        return self._look(board, SimpleNamespace(busId=b"00000000:0A:00.0"))

    def nvmlDeviceGetCudaComputeCapability(self, board: Board) -> tuple[int, int]:
        return self._look(board, board.capability)

    def nvmlDeviceGetMigMode(self, board: Board) -> list[int]:
        return self._look(board, [int(board.slices is not None), 0])

    def nvmlDeviceGetMaxMigDeviceCount(self, board: Board) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, board: Board, index: int) -> Board:
        if index >= len(board.slices or ()):
            raise self.NVMLError(6)
        return (board.slices or [])[index]

    def nvmlDeviceGetMemoryInfo(self, board: Board) -> Any:
        return self._look(board, SimpleNamespace(total=board.memory_bytes))

    def nvmlDeviceGetComputeMode(self, board: Board) -> int:
        return self._look(board, board.compute_mode)

    def nvmlDeviceGetTotalEccErrors(self, board: Board, kind: int, _: int) -> int:
        return self._look(board, None if board.errors is None else board.errors[kind])

    def nvmlDeviceGetRemappedRows(self, board: Board) -> tuple[int, int, int, int]:
        return self._look(board, board.remapped)

    def nvmlDeviceGetCurrentClocksEventReasons(self, board: Board) -> int:
        return self._look(board, board.reasons)

    def nvmlDeviceGetTemperature(self, board: Board, _: int) -> int:
        return self._look(board, 41)

    def nvmlDeviceGetTemperatureThreshold(self, board: Board, _: int) -> int:
        return self._look(board, 95)

    def nvmlDeviceGetFieldValues(self, board: Board, fields: list[int]) -> list[Any]:
        assert fields == [230]
        value = SimpleNamespace(uiVal=board.recovery or 0)
        answered = 0 if board.recovery is not None else 3
        return self._look(board, [SimpleNamespace(nvmlReturn=answered, value=value)])

    def nvmlEventSetCreate(self) -> object:
        return object()

    def nvmlDeviceRegisterEvents(self, board: Board, types: int, _: object) -> None:
        assert types == 8
        self.registered.append(board.uuid)

    def nvmlEventSetFree(self, _: object) -> None:
        self.registered.clear()

    def nvmlEventSetWait_v2(self, _: object, timeout_ms: int) -> Any:
        assert timeout_ms > 0
        if not self.events:
            raise self.NVMLError(self.NVML_ERROR_TIMEOUT)
        board, code = self.events.pop(0)
        return SimpleNamespace(device=board, eventData=code)
