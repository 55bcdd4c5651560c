"""What a failed attempt died of, from real programs' last words; and what must not be believed."""

from __future__ import annotations

import pytest

from windfall.advisor.failures import AttemptEnd, diagnose
from windfall.jobs.aws_texts import FAILED_TO_START, TIMED_OUT
from windfall.jobs.diagnosis import FailureCause

TORCH_OOM = """\
Traceback (most recent call last):
  File "train.py", line 41, in <module>
    loss = model(batch).sum()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 15.77 GiB of \
which 11.53 GiB is free. Process 71 has 4.24 GiB memory in use.
"""
CAUGHT_OOM = (
    TORCH_OOM
    + """\
WARNING halving the batch to 32
step 11 loss 2.31
step 12 loss 2.29
"""
)
TENSORFLOW = (
    "OOM when allocating tensor with shape[40000,40000] and type float on /job:localhost/task:0/device:GPU:0"
)
DRIVER = (
    "RuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime version\n"
    "CUDA kernel errors might be asynchronously reported at some other API call."
)


def cause_of(text: str, exit_code: int = 1, **more: object) -> FailureCause | None:
    found = diagnose(AttemptEnd(exit_code, lines=text.splitlines(), **more))  # type: ignore[arg-type]  # by keyword
    return None if found is None else found.cause


def raised(line: str) -> str:
    return f'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    run()\n{line}\n'


LAST_LINES = f"""
gpu-out-of-memory|torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB
gpu-out-of-memory|jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate
gpu-out-of-memory|tensorflow.python.framework.errors_impl.ResourceExhaustedError: {{function_node}} {TENSORFLOW}
gpu-out-of-memory|cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 8,000,000,000 bytes
gpu-out-of-memory|RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`
host-out-of-memory|MemoryError
host-out-of-memory|numpy._core._exceptions._ArrayMemoryError: Unable to allocate 745. GiB for an array
host-out-of-memory|RuntimeError: [enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory
host-out-of-memory|RuntimeError: DataLoader worker (pid(s) 4711) is killed by signal: Killed.
shared-memory-too-small|RuntimeError: DataLoader worker (pid 4711) is killed by signal: Bus error. It is possible that
shared-memory-too-small|RuntimeError: unable to write to file </torch_4711_1234_0>: No space left on device (28)
shared-memory-too-small|RuntimeError: unable to allocate shared memory(shm) for file </torch_1_2_0>: No space left (28)
gpu-not-visible|RuntimeError: Unknown backend cuda. Available backends are ['cpu']
gpu-not-visible|InvalidArgumentError: Could not satisfy device specification '/job:localhost/task:0/device:GPU:0'.
gpu-not-visible|RuntimeError: No CUDA GPUs are available
gpu-not-visible|AssertionError: Torch not compiled with CUDA enabled
gpu-not-visible|RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU
gpu-not-visible|cupy_backends.cuda.api.runtime.CUDARuntimeError: cudaErrorNoDevice: no CUDA-capable device is
driver-mismatch|RuntimeError: The NVIDIA driver on your system is too old (found version 11040).
driver-mismatch|RuntimeError: CUDA error: no kernel image is available for execution on the device
gpu-fault|RuntimeError: CUDA error: an illegal memory access was encountered
gpu-fault|RuntimeError: CUDA error: uncorrectable ECC error encountered
nccl|torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:219, network error
missing-module|ModuleNotFoundError: No module named 'transformers'
missing-script|python3: can't open file '/tmp/attempts/a/train.py': [Errno 2] No such file or directory
missing-script|/usr/bin/python3.11: can't open file 'train.py': [Errno 2] No such file or directory
missing-script|sh: 0: cannot open train.sh: No such file
missing-script|bash: train.sh: No such file or directory
missing-module|ImportError: libcudnn.so.9: cannot open shared object file: No such file
disk-full|OSError: [Errno 28] No space left on device
|ValueError: batch size must be positive
"""


@pytest.mark.parametrize("told", LAST_LINES.strip().splitlines())
def test_the_exception_that_ended_a_program(told):
    cause, _, line = told.partition("|")
    assert cause_of("epoch 1\nstep 10 loss 3.1\n" + raised(line)) == (cause or None)


def test_the_evidence_is_the_line_itself():
    found = diagnose(AttemptEnd(1, lines=TORCH_OOM.splitlines()))
    assert found is not None
    assert found.evidence.startswith(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB"
    )
    assert len(found.evidence) <= 300


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("python3: No module named train\n", FailureCause.MISSING_MODULE),
        ("/usr/bin/python3.11: No module named train\n", FailureCause.MISSING_MODULE),
        ("Failed to initialize NVML: Driver/library version mismatch\n", FailureCause.DRIVER_MISMATCH),
        ("cp: error writing 'model.bin': No space left on device\n", FailureCause.DISK_FULL),
        ("terminate called after throwing an instance of 'std::bad_alloc'\n", FailureCause.HOST_MEMORY),
        (DRIVER + "\n", FailureCause.DRIVER_MISMATCH),
        (
            "ERROR: Unexpected bus error encountered in worker, caused by insufficient shared memory (shm).\n",
            FailureCause.SHARED_MEMORY,
        ),
        (
            "host:1:1 [0] misc/shmutils.cc:72 NCCL WARN Call to posix_fallocate failed : No space left on device\n",
            FailureCause.SHARED_MEMORY,
        ),
        (
            "[ 12.3] NVRM: Xid (PCI:0000:17:00): 79, pid=1, GPU has fallen off the bus.\n",
            FailureCause.GPU_FAULT,
        ),
    ],
)
def test_last_words_without_a_traceback(text, cause):
    assert cause_of(text) == cause


# --- what must not be believed ------------------------------------------------------------------------


def test_an_error_that_was_caught_and_survived_is_no_cause():
    assert cause_of(CAUGHT_OOM) is None
    assert (
        cause_of(CAUGHT_OOM + raised("ModuleNotFoundError: No module named 'yaml'"))
        is FailureCause.MISSING_MODULE
    )
    assert cause_of(CAUGHT_OOM + raised("ValueError: the loss is not finite")) is None


def test_a_caught_error_is_no_cause_of_an_end_with_other_words():
    quiet = (
        TORCH_OOM + "".join(f"saving part {part}\n" for part in "abcdefghijklm") + "the check sum is wrong\n"
    )
    assert cause_of(quiet) is None


@pytest.mark.parametrize(
    "text",
    [
        "WARNING Could not import flash_attn: ModuleNotFoundError: No module named 'flash_attn'\nbad input\n",
        "INFO:2026-11-15 jax: Unable to initialize backend 'cuda': not found\nassertion failed\n",
        "step 4000 loss 1.2 (No space left on device is what we feared)\n",
        "the reader ran out of memory budget: 4 rows\n",
        "UserWarning: CUDA initialization: Found no NVIDIA driver on your system.\nwrong checksum\n",
        "",
    ],
)
def test_a_line_that_only_talks_about_it_is_no_cause(text):
    assert cause_of(text) is None


def test_shared_memory_is_never_the_cause_of_a_full_gpu():
    told = "WARNING sharedMemorySize is 64 MiB\n" + TORCH_OOM
    assert cause_of(told) is FailureCause.GPU_MEMORY


def test_a_success_has_no_cause_whatever_its_log_says():
    assert diagnose(AttemptEnd(0, lines=TORCH_OOM.splitlines())) is None


# --- several processes, several exceptions ------------------------------------------------------------


def test_the_launcher_only_passes_on_what_a_rank_died_of():
    launcher = raised("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ")
    table = (
        "=" * 60 + "\ntrain.py FAILED\n" + "-" * 60 + "\n  rank      : 0 (local_rank: 0)\n  exitcode  : 1\n"
    )
    assert cause_of(TORCH_OOM + launcher + table) is FailureCause.GPU_MEMORY


def test_the_rank_that_failed_first_counts_and_not_those_that_miss_it():
    other = raised("torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:219")
    prefixed = "".join(f"[rank0]: {line}\n" for line in TORCH_OOM.splitlines())
    assert (
        cause_of(prefixed + "".join(f"[rank1]: {line}\n" for line in other.splitlines()))
        is FailureCause.GPU_MEMORY
    )


def test_the_cause_of_a_chained_exception_counts():
    chained = (
        TORCH_OOM
        + "\nThe above exception was the direct cause of the following exception:\n\n"
        + raised("RuntimeError: training failed")
    )
    assert cause_of(chained) is FailureCause.GPU_MEMORY


# --- our own facts ------------------------------------------------------------------------------------


def test_what_windfall_itself_did_comes_before_what_the_log_says():
    lines = TORCH_OOM.splitlines()
    timed_out = diagnose(AttemptEnd(137, None, TIMED_OUT, lines))
    killed = diagnose(AttemptEnd(137, "OutOfMemoryError: Container killed due to memory usage", None, lines))
    assert timed_out is not None
    assert timed_out.cause is FailureCause.KILLED_BY_TIME
    assert killed is not None
    assert killed.cause is FailureCause.HOST_MEMORY


def test_a_start_that_failed_says_why():
    pull = diagnose(AttemptEnd(None, "CannotPullContainerError: pull access denied", FAILED_TO_START))
    runtime = 'CannotStartContainerError: could not select device driver "" with capabilities: [[gpu]]'
    no_gpu = diagnose(AttemptEnd(None, runtime, FAILED_TO_START))
    assert pull is not None
    assert pull.cause is FailureCause.NOT_STARTED
    assert no_gpu is not None
    assert no_gpu.cause is FailureCause.GPU_NOT_VISIBLE


def test_a_kill_without_our_flag_needs_a_witness():
    assert cause_of("step 1 loss 2\n", 137) is None
    assert cause_of("step 1 loss 2\n", 137, memory_peak=0.97) is FailureCause.HOST_MEMORY
    assert cause_of("step 1 loss 2\n", 137, memory_peak=0.3) is None
    assert cause_of("train.sh: line 2: 4711 python train.py\nKilled\n", 137) is FailureCause.HOST_MEMORY


def test_codes_that_speak_for_themselves():
    assert cause_of("", 135) is FailureCause.SHARED_MEMORY
    assert cause_of("", 124) is FailureCause.KILLED_BY_TIME
    assert cause_of("", 1) is None


def test_the_kernels_word_on_a_gpu_counts_where_the_log_shows_nothing():
    xids = [
        "NVRM: Xid (PCI:0000:3b:00): 48, an uncorrectable error",
        "NVRM: Xid (PCI:0000:3b:00): 45, cut off",
    ]
    found = diagnose(AttemptEnd(1, lines=["step 1"], kernel_lines=xids))
    assert found is not None
    assert (found.cause, found.evidence) == (FailureCause.GPU_FAULT, xids[0])
    assert cause_of(TORCH_OOM, kernel_lines=xids) is FailureCause.GPU_MEMORY
    assert cause_of("", 137, kernel_lines=xids, memory_peak=1.0) is FailureCause.GPU_FAULT
    assert cause_of("", 0, kernel_lines=xids) is None


@pytest.mark.parametrize("sign", ["1", "a", " ", "-", "a=", "(", "a/", ".", '"', "\t", "Error: "])
def test_a_line_that_is_made_to_take_long_does_not(sign):
    """The agent reads the log of every failed job itself, and all other jobs wait meanwhile."""
    assert diagnose(AttemptEnd(1, lines=[(sign * 500_000)[:500_000]])) is None
