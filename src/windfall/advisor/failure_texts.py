"""What programs write when they fail, and which cause it shows. A table; failures.py decides which line counts.

The texts are those of CUDA, PyTorch, JAX, TensorFlow, CuPy, NCCL, Python, glibc and the kernel. Patterns are narrow: a
line that merely talks about memory must not match. Holds no logic.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from windfall.jobs.diagnosis import FailureCause


@dataclass(frozen=True, slots=True)
class Pattern:
    """One kind of line."""

    cause: FailureCause
    text: re.Pattern[str]


def _of(cause: FailureCause, *texts: str) -> tuple[Pattern, ...]:
    return tuple(Pattern(cause, re.compile(text)) for text in texts)


#: Earlier ones win within one line.
PATTERNS: tuple[Pattern, ...] = (
    # Shared memory comes before GPU and host memory: its lines name memory too. It never is the cause of a CUDA OOM.
    *_of(
        FailureCause.SHARED_MEMORY,
        r"insufficient shared memory \(shm\)",
        r"DataLoader worker \(pid\(?s?\)?.*\) (?:is|are) killed by signal: Bus error",
        r"unable to (?:open|write to|mmap|resize|allocate) (?:shared memory|file </torch_\w+)",
        r"No space left on device:? .*['\"]?/dev/shm",
        r"/dev/shm.*No space left on device",  # noqa: S108 (a text to look for, no file to use)
        r"NCCL WARN .*posix_fallocate",
        r"NCCL WARN .*(?:shm|shared memory).*(?:No space left|too small|Failed to)",
        r"Error while creating shared memory segment .*\(size \d+\)",
    ),
    *_of(
        FailureCause.DRIVER_MISMATCH,
        r"CUDA driver version is insufficient for CUDA runtime version",
        r"cudaErrorInsufficientDriver",
        r"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH|system has unsupported display driver / cuda driver combination",
        r"Failed to initialize NVML: Driver/library version mismatch",
        r"The NVIDIA driver on your system is too old",
        r"no kernel image is available for execution on the device",
        r"the provided PTX was compiled with an unsupported toolchain",
        r"CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        r"nvidia-container-cli: requirement error: unsatisfied condition: cuda",
        r"forward compatibility was attempted on non supported HW",
    ),
    *_of(
        FailureCause.GPU_MEMORY,
        r"torch\.(?:cuda\.)?OutOfMemoryError",
        r"CUDA out of memory",
        r"CUDA error: out of memory",
        r"CUDA_ERROR_OUT_OF_MEMORY",
        r"cudaErrorMemoryAllocation",
        r"CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED",
        r"RESOURCE_EXHAUSTED: .*(?:[Oo]ut of memory|Failed to allocate request)",
        r"ResourceExhaustedError.*OOM when allocating tensor.*GPU",
        r"OOM when allocating tensor with shape.* on /job:.*device:GPU",
        r"cupy\.cuda\.memory\.OutOfMemoryError",
        r"cupy_backends\.cuda\.api\.runtime\.CUDARuntimeError: cudaErrorMemoryAllocation",
        r"HIP out of memory",
    ),
    *_of(
        FailureCause.GPU_FAULT,
        r"NVRM: Xid",
        r"CUDA error: (?:an illegal memory access|an illegal instruction|misaligned address)",
        r"CUDA error: unspecified launch failure",
        r"CUDA_ERROR_(?:ILLEGAL_ADDRESS|ILLEGAL_INSTRUCTION|LAUNCH_FAILED|ECC_UNCORRECTABLE|HARDWARE_STACK_ERROR)",
        r"uncorrectable ECC error encountered",
        r"CUDA error: device-side assert triggered",
        r"GPU has fallen off the bus|GPU is lost",
        r"cudaErrorIllegalAddress|cudaErrorECCUncorrectable|cudaErrorDevicesUnavailable",
    ),
    *_of(
        FailureCause.GPU_NOT_VISIBLE,
        r"no CUDA-capable device is detected",
        r"cudaErrorNoDevice|CUDA_ERROR_NO_DEVICE",
        r"No CUDA GPUs are available",
        r"Found no NVIDIA driver on your system",
        r"Torch not compiled with CUDA enabled",
        r"Attempting to deserialize object on a CUDA device but torch\.cuda\.is_available\(\) is False",
        r"CUDA error: invalid device ordinal",
        r"Unknown backend:? '?(?:cuda|gpu)'?",
        r"Unable to initialize backend 'cuda'",
        r"Could not satisfy device specification .*device:GPU",
        r"could not select device driver .* with capabilities: \[\[gpu\]\]",
        r"Failed to initialize NVML: (?:Unknown Error|Insufficient Permissions)",
        r"libcuda\.so(?:\.1)?: cannot open shared object file",
    ),
    *_of(
        FailureCause.NCCL,
        r"ncclUnhandledCudaError|ncclSystemError|ncclInternalError|ncclInvalidUsage|ncclRemoteError",
        r"NCCL error in:|NCCL Error \d+|torch\.distributed\.DistBackendError: NCCL",
        r"Watchdog caught collective operation timeout",
        r"\[Rank \d+\] .*collective operation timeout",
        r"NCCL operation .* failed|NCCL communicator was aborted",
    ),
    *_of(
        FailureCause.MISSING_MODULE,
        r"^(?:ModuleNotFoundError|ImportError): No module named ",
        r"\bpython[\d.]*: No module named \S+$",
        r"^ImportError: cannot import name ",
        r"error while loading shared libraries: .*cannot open shared object file",
        r"^ImportError: lib\S+: cannot open shared object file",
    ),
    *_of(
        FailureCause.MISSING_SCRIPT,
        r"\bpython[\d.]*: can't open file '[^']*': \[Errno 2\] No such file or directory$",
        r"^(?:ba|da)?sh: (?:0: )?(?:cannot open )?\S+: No such file(?: or directory)?$",
    ),
    *_of(
        FailureCause.DISK_FULL,
        r"\[Errno 28\] No space left on device",
        r"No space left on device$",
        r"OSError: .*Disk quota exceeded",
        r"write error: No space left on device",
    ),
    *_of(
        FailureCause.HOST_MEMORY,
        r"^MemoryError\b",
        r"numpy\.(?:core\._exceptions\.|_core\._exceptions\.)?_?ArrayMemoryError",
        r"DefaultCPUAllocator: (?:can't|not enough) (?:allocate|memory)",
        r"\[Errno 12\] Cannot allocate memory",
        r"std::bad_alloc",
        r"DataLoader worker \(pid\(?s?\)?.*\) (?:is|are) killed by signal: Killed",
        r"Out of memory: Killed process \d+",
        r"OOM when allocating tensor with shape.* on /job:.*device:CPU",
        r"java\.lang\.OutOfMemoryError",
    ),
)

#: What ends a traceback of a launcher that only passes on the end of another process.
LAUNCHERS = re.compile(
    r"ChildFailedError|CalledProcessError|ProcessExitedException|ProcessRaisedException|SpawnException"
)
#: A loop that goes on: whatever was said before such a line was survived.
GOES_ON = re.compile(
    r"\b(?:step|epoch|iter|iteration|batch)\b\W{0,3}\d|\bloss\b\W{1,3}\d|\d%\|", re.IGNORECASE
)
#: Lines that say of themselves that they are harmless; NCCL warns of what kills it.
MILD = re.compile(
    r"^(?!.*NCCL)(?:\S+ ){0,4}\[?(?:INFO|DEBUG|WARNING|WARN)\b|^[IW]\d{4} |^\S*Warning: |^.*\.py:\d+: \w*Warning: "
)
#: What is written after the end by those around: launchers, loggers, shells.
NOISE = re.compile(
    r"^\s|^$|^wandb:|^\[[WEI]\d|^[=*-]{3,}|^srun:|^terminate called|^\S+\.sh: |^\[rank\d|^NCCL|^E\d{4} |^W\d{4} "
)
