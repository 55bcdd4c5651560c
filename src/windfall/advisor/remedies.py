"""What to do about a failure's cause, with the job's own numbers. Decides words; must not judge the cause."""

from __future__ import annotations

from windfall.jobs.diagnosis import Diagnosis, FailureCause
from windfall.jobs.job import Job

ON_GPU_OOM = "windfall:on-gpu-oom=larger"


def remedies(diagnosis: Diagnosis, job: Job, shared_memory_mib: int | None = None) -> list[str]:
    """What helps against the cause of a failed attempt, the best first."""
    resources = job.submission.resources
    cause = diagnosis.cause
    if cause is FailureCause.GPU_MEMORY:
        return _gpu_memory(job)
    if cause is FailureCause.HOST_MEMORY:
        has = resources.memory_mib
        more = f"set resourceRequirements MEMORY to {has * 2:,} MiB or more (it has {has:,} MiB)"
        return [f"{more}, or make it need less: fewer loader workers, smaller batches"]
    if cause is FailureCause.SHARED_MEMORY:
        return _shared_memory(shared_memory_mib)
    if cause is FailureCause.KILLED_BY_TIME:
        return _time(diagnosis, job)
    if cause is FailureCause.GPU_NOT_VISIBLE:
        return _no_gpu(resources.gpus)
    if cause is FailureCause.MISSING_MODULE:
        return [_missing(diagnosis, in_place=job.submission.directory is not None)]
    if cause is FailureCause.MISSING_SCRIPT:
        return [_script(in_place=job.submission.directory is not None)]
    return _FIXED[cause]


def _script(*, in_place: bool) -> str:
    if in_place:
        return "run it from the directory that has the script, or name the script by its whole path"
    return (
        "nothing of your directory went with the job: send the code with `windfall run --git URL@REV`, name a path that"
        " every machine has, or leave --clean out to run in your directory on the daemon's host"
    )


_FIXED: dict[FailureCause, list[str]] = {
    FailureCause.DRIVER_MISMATCH: [
        "use a build of the framework for an older CUDA, or update the driver: `nvidia-smi` says which CUDA it knows",
        "after an update of the driver restart the host, so that kernel module and libraries are of one version",
    ],
    FailureCause.GPU_FAULT: [
        "look at the device: `nvidia-smi -q` and the kernel log (Xid); `windfall status` says whether it is fenced",
        "if it happens on every GPU it is the program: run it with CUDA_LAUNCH_BLOCKING=1 to see the kernel",
    ],
    FailureCause.NCCL: [
        "find the rank that failed first: the others only tell that it is gone; NCCL_DEBUG=INFO says more",
        "see that the ranks reach one another, and that sharedMemorySize is 1024 MiB or more",
    ],
    FailureCause.DISK_FULL: [
        "make room where it writes, write less, or write into /opt/ml/checkpoints, which goes to the object store",
    ],
    FailureCause.NOT_STARTED: [
        "check the image, the command and that the job's user may run it",
    ],
}


def _gpu_memory(job: Job) -> list[str]:
    floor = job.gpu_memory_floor_mib
    tried = f" than {floor - 1:,} MiB" if floor else ""
    advice = ["use a smaller batch, gradient accumulation, bf16 or activation checkpointing"]
    wish = job.submission.gpu_wish
    if wish is not None and wish.share is not None and not floor:  # With a floor it has had a whole one.
        advice.append(f"ask for more than {wish.share:g} of a GPU: its memory is shared too")
    if wish is not None and wish.model is not None and floor:
        advice.append(f"leave out windfall:gpu-model={wish.model}, if other GPUs with more memory will do")
    if job.submission.larger_gpu_on_oom:
        advice.append(
            f"it is tried again on a larger GPU by its tag ({ON_GPU_OOM}); there is none with more memory{tried}"
        )
    else:
        advice.append(
            f"ask for a GPU with more memory{tried} (tag windfall:gpu-memory-gib), or use the tag {ON_GPU_OOM}"
        )
    # Seeds and forums say so, and it is wrong: /dev/shm is the host's memory.
    advice.append("sharedMemorySize does not help: shared memory is the host's, not the GPU's")
    return advice


def _shared_memory(asked_mib: int | None) -> list[str]:
    better = max(2048, 2 * (asked_mib or 0))
    now = f"it has {asked_mib:,} MiB" if asked_mib else "a container engine gives 64 MiB where it is not said"
    return [
        f"set linuxParameters.sharedMemorySize to {better:,} MiB or more; {now}",
        "or use fewer loader workers (num_workers), or torch.multiprocessing.set_sharing_strategy('file_system')",
    ]


def _no_gpu(gpus: float) -> list[str]:
    mended = ["use an image and a framework with CUDA; `windfall doctor` checks driver and container runtime"]
    if not gpus:
        return ["set resourceRequirements GPU to 1: a job that asks for no GPU sees none", *mended]
    return [*mended, "a simulated GPU is one in name only: `windfall gpus` says whether those here are real"]


def _time(diagnosis: Diagnosis, job: Job) -> list[str]:
    limit = job.submission.timeout_s
    now = f" ({limit:,} s now)" if limit else ""
    # By the attempt's own limit it has no exit code of its own to show.
    own = diagnosis.evidence.startswith("exit code")
    raised = (
        "give `timeout` more time in its command" if own else f"raise timeout.attemptDurationSeconds{now}"
    )
    return [
        f"{raised}, or find out why it took that long: `windfall advise {job.id}`",
        "keep checkpoints (tag windfall:checkpoint=true), so that the next attempt goes on where this one stopped",
    ]


def _missing(diagnosis: Diagnosis, *, in_place: bool) -> str:
    name = diagnosis.evidence.partition("No module named ")[2].strip("'\" .")
    problem = f"the module {name} is not there" if name else "a module or library is not there"
    if in_place:
        return (
            f"{problem}: install it into the environment that the job runs with, or activate another one before"
            " `windfall run`; `windfall run --dry-run` shows which is taken along"
        )
    return (
        f"{problem}: put it into the image, or install it for the interpreter that the job runs (a job that was not"
        " submitted by `windfall run` does not see your shell's virtual environment)"
    )
