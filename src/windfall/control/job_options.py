"""The options of a Batch job beyond AWS's own fields, by tag or parameter: checkpoints, code from Git, a budget,
GPUs of a kind, containers or processes, warm workers.

Read from the job's own tags, its parameters, the definition's tags and its parameters, in this order. Decides what
a value means and rejects invalid ones; must not check whether a directory or a repository exists.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from typing import TypeVar

from windfall.jobs.containers import Pull, Runtime
from windfall.jobs.definitions import JobDefinition
from windfall.jobs.errors import Invalid
from windfall.jobs.git_credentials import advice, credential_name, host_of
from windfall.jobs.git_urls import carries_secret, without_secrets
from windfall.jobs.gpus import GpuWish
from windfall.jobs.ids import JobId
from windfall.jobs.job import JobDeadline, OnPartition
from windfall.jobs.kept_files import BadPattern, read_patterns
from windfall.jobs.log_limits import LIMIT_FORM, log_limit_bytes
from windfall.jobs.staging import WORKING_DIRECTORY, Checkpoints, GitSource, Output, Staging
from windfall.jobs.workers import Worker, WorkerKind
from windfall.schedules.instants import duration_s, instant_ms

#: As tags. As parameters, which may not hold a colon, they are spelled `windfall-checkpoint` and so on.
CHECKPOINT, GIT, BUDGET = "windfall:checkpoint", "windfall:git", "windfall:budget-usd"
PROFILE = "windfall:profile"
GPU_MODEL, GPU_MEMORY, GPU_SHARE = "windfall:gpu-model", "windfall:gpu-memory-gib", "windfall:gpu-share"
ON_GPU_OOM, ON_SICK_GPU = "windfall:on-gpu-oom", "windfall:on-sick-gpu"
RUNTIME, PULL = "windfall:runtime", "windfall:pull"
WORKER = "windfall:worker"
REPLACE_LOST_NODES = "windfall:replace-lost-nodes"
KEEP = "windfall:keep"
PREEMPTIONS_MAX = "windfall:preemptions-max"
#: The directory of the host in which a process of the job starts.
DIRECTORY = "windfall:dir"
#: What the log of an attempt may have at most, if that is less than the daemon's limit.
LOG_LIMIT = "windfall:log-limit"
#: When the job is to be done, and how long it works.
DEADLINE, WORK = "windfall:deadline", "windfall:work"
#: What it does on a machine that has lost its daemon.
PARTITION = "windfall:partition"

#: What sets the kept files of a job apart from its checkpoints.
KEPT_SUFFIX = ".kept"

_YES, _NO = ("true", "yes", "1"), ("", "false", "no", "0")
_URI = re.compile(r"(file:///|s3://[^/]+).*")
_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+-]*")
_TARGET = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_.]*")
#: All of them.
JOB_TAGS = (
    *(CHECKPOINT, GIT, BUDGET, PROFILE, RUNTIME, PULL, WORKER, PREEMPTIONS_MAX, DIRECTORY, DEADLINE, WORK),
    *(
        GPU_MODEL,
        GPU_MEMORY,
        GPU_SHARE,
        ON_GPU_OOM,
        ON_SICK_GPU,
        REPLACE_LOST_NODES,
        KEEP,
        PARTITION,
        LOG_LIMIT,
    ),
)


@dataclass(frozen=True, slots=True)
class WantedDeadline:
    """A deadline as a tag has it: a time, or how long from the submission."""

    at: int | None
    within_s: float | None
    work_s: float | None = None

    def from_now(self, now: int) -> JobDeadline:
        """The deadline of a job that is submitted now."""
        at = self.at if self.at is not None else now + int((self.within_s or 0.0) * 1000)
        return JobDeadline(at, self.work_s)


@dataclass(frozen=True, slots=True)
class JobOptions:
    """The options of one job."""

    staging: Staging | None = None
    budget_usd: float | None = None
    gpu_wish: GpuWish | None = None
    larger_gpu_on_oom: bool = False
    runtime: Runtime | None = None
    pull: Pull | None = None
    worker: Worker | None = None
    stays_on_sick_gpu: bool = False
    preemptions_max: int | None = None
    #: Of a multi-node job: whether a node that lost its place is replaced while the others go on.
    replaces_lost_nodes: bool = False
    #: Where its process starts, with the rights of its own user; None leaves that to its image.
    directory: str | None = None
    deadline: WantedDeadline | None = None
    partition: OnPartition | None = None
    log_limit_bytes: int | None = None

    @property
    def free_interruptions(self) -> bool:
        """Whether it keeps checkpoints, so that losing its place costs it no attempt."""
        return self.staging is not None and self.staging.checkpoints is not None


NONE = JobOptions()
_Word = TypeVar("_Word", bound=StrEnum)


def job_options_of(
    job_id: JobId,
    tags: Mapping[str, str],
    parameters: Mapping[str, str],
    definition: JobDefinition,
    checkpoint_root: str | None,
) -> JobOptions:
    """What a submission asks for, or Invalid with what to write instead."""
    if not (tags or parameters or definition.tags or definition.parameters):
        return NONE  # as most jobs are
    sources = (tags, parameters, definition.tags, definition.parameters)
    values = {name: value for name in JOB_TAGS if (value := _find(name, sources)) is not None}
    if not values:
        return NONE
    checkpoints = _checkpoints(values.get(CHECKPOINT, ""), job_id, checkpoint_root)
    git = _git(values[GIT]) if GIT in values else None
    directory = _directory(values)
    outputs = _kept(values[KEEP], job_id, checkpoint_root) if KEEP in values else ()
    # A job that is profiled needs a place for what it says of itself, which every staged one has.
    is_profiled = _is_yes(PROFILE, values.get(PROFILE, ""))
    wants_staging = checkpoints is not None or git is not None or bool(outputs) or is_profiled
    return JobOptions(
        Staging(checkpoints, git, outputs=outputs) if wants_staging else None,
        budget_of(values),
        gpu_wish_of(values),
        larger_gpu_on_oom(values),
        runtime_of(values),
        pull_of(values),
        _worker(values.get(WORKER)),
        stays_on_sick_gpu(values),
        preemptions_max_of(values),
        _is_yes(REPLACE_LOST_NODES, values.get(REPLACE_LOST_NODES, "")),
        directory,
        _deadline(values),
        partition_of(values),
        log_limit_of(values),
    )


def log_limit_of(tags: Mapping[str, str]) -> int | None:
    """What the log of an attempt may have at most; None leaves that to the daemon."""
    text = tags.get(LOG_LIMIT)
    if text is None:
        return None
    if (limit := log_limit_bytes(text)) is None:
        raise Invalid(f"{LOG_LIMIT} must be {LIMIT_FORM}; it is {text!r}")
    return limit


def partition_of(tags: Mapping[str, str]) -> OnPartition | None:
    """What the tags of a job, or of a compute environment, say about machines that have lost their daemon."""
    return _one_of(PARTITION, OnPartition, tags.get(PARTITION))


def _deadline(tags: Mapping[str, str]) -> WantedDeadline | None:
    """When a job is to be done, and how long it works."""
    text, work = tags.get(DEADLINE), tags.get(WORK)
    work_s = None if work is None else duration_s(work)
    if work is not None and work_s is None:
        raise Invalid(f"{WORK} must be how long the job works, such as 6h or 90m; it is {work!r}")
    if text is None:
        return None
    within_s, at = duration_s(text), instant_ms(text)
    if within_s is None and at is None:
        raise Invalid(
            f"{DEADLINE} must be a time with its zone, such as 2026-11-20T08:00:00Z, or how long from the submission,"
            f" such as 8h; it is {text!r}"
        )
    return WantedDeadline(at, within_s, work_s)


def budget_of(tags: Mapping[str, str]) -> float | None:
    """The budget among the tags of a job, in US dollars."""
    text = tags.get(BUDGET)
    if text is None:
        return None
    try:
        budget = float(text.strip().removeprefix("$"))
    except ValueError:
        budget = -1.0
    if not (isfinite(budget) and budget > 0):
        raise Invalid(f"{BUDGET} must be a number of US dollars above 0, such as 12.50; it is {text!r}")
    return budget


def _directory(tags: Mapping[str, str]) -> str | None:
    """The directory in which a job's process starts, which must be an absolute path."""
    text = tags.get(DIRECTORY)
    if text is None:
        return None
    # A name that is not UTF-8 arrives with halves of characters, and nothing further on could write it.
    if not text.startswith("/") or "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
        raise Invalid(f"{DIRECTORY} must be an absolute path, such as /home/me/project; it is {text!r}")
    if GIT in tags:
        raise Invalid(
            f"{GIT} runs the job in a new checkout, so {DIRECTORY} cannot be used with it: omit one"
        )
    return text


def preemptions_max_of(tags: Mapping[str, str]) -> int | None:
    """How often a job may lose its place to others of its queue before it fails; None means without limit."""
    text = tags.get(PREEMPTIONS_MAX)
    if text is None:
        return None
    if not (text.strip().isascii() and text.strip().isdecimal()):
        raise Invalid(f"{PREEMPTIONS_MAX} must be a whole number from 0 on; it is {text!r}")
    return int(text.strip())


def runtime_of(tags: Mapping[str, str]) -> Runtime | None:
    """Whether the tags of a job ask for a process or a container."""
    return _one_of(RUNTIME, Runtime, tags.get(RUNTIME))


def pull_of(tags: Mapping[str, str]) -> Pull | None:
    """When the tags of a job have its image fetched."""
    return _one_of(PULL, Pull, tags.get(PULL))


def _find(name: str, sources: tuple[Mapping[str, str], ...]) -> str | None:
    spellings = (name, name.replace(":", "-"))
    return next((source[each] for source in sources for each in spellings if each in source), None)


def _is_yes(name: str, text: str) -> bool:
    word = text.strip().lower()
    if word not in (*_YES, *_NO):
        raise Invalid(f"{name} must be true or false; it is {text!r}")
    return word in _YES


def _one_of(name: str, kind: type[_Word], text: str | None) -> _Word | None:
    if text is None:
        return None
    try:
        return kind(text.strip().lower())
    except ValueError:
        words = ", ".join(member.value for member in kind)
        raise Invalid(f"{name} must be one of {words}; it is {text!r}") from None


def gpu_wish_of(tags: Mapping[str, str]) -> GpuWish | None:
    """What the tags of a job ask of its GPUs."""
    model = tags.get(GPU_MODEL, "").strip() or None
    memory = _number(GPU_MEMORY, tags.get(GPU_MEMORY), "a number of GiB above 0, such as 40", 1_000_000)
    share = _number(GPU_SHARE, tags.get(GPU_SHARE), "a part of one GPU, above 0 and below 1, such as 0.5", 1)
    if share == 1:
        share = None  # all of it is an ordinary request
    wish = GpuWish(model, None if memory is None else int(memory * 1024), share)
    return None if wish == GpuWish() else wish


def _number(name: str, text: str | None, meaning: str, most: float) -> float | None:
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 < number <= most:
        raise Invalid(f"{name} must be {meaning}; it is {text!r}")
    return number


def larger_gpu_on_oom(tags: Mapping[str, str]) -> bool:
    """Whether the tags of a job have it tried on a larger GPU when the memory of one was too small."""
    text = tags.get(ON_GPU_OOM, "")
    word = text.strip().lower()
    if word not in ("", "fail", "larger"):
        raise Invalid(
            f"{ON_GPU_OOM} must be larger (try again on a GPU with more memory) or fail; it is {text!r}"
        )
    return word == "larger"


def stays_on_sick_gpu(tags: Mapping[str, str]) -> bool:
    """Whether the tags of a job have it keep a GPU that falls ill, rather than be moved to another one."""
    word = tags.get(ON_SICK_GPU, "").strip().lower()
    if word not in ("", "move", "stay"):
        raise Invalid(
            f"{ON_SICK_GPU} must be move (try again on another GPU) or stay; it is {tags[ON_SICK_GPU]!r}"
        )
    return word == "stay"


def _worker(text: str | None) -> Worker | None:
    word = (text or "").strip()
    if word.lower() in _NO:
        return None
    if word.lower() == WorkerKind.LINES:
        return Worker(WorkerKind.LINES)
    if not _TARGET.fullmatch(word):
        raise Invalid(
            f"{WORKER} must be `module:function` (called once per child with its index) or `lines` (the job's command"
            f" reads one JSON line per child); it is {text!r}"
        )
    return Worker(WorkerKind.CALLABLE, word)


def _checkpoints(text: str, job_id: JobId, root: str | None) -> Checkpoints | None:
    word = text.strip()
    if word.lower() in _NO:
        return None
    if word.lower() in _YES:
        if root is None:
            raise Invalid(
                f"{CHECKPOINT}={word} needs a place for checkpoints and this daemon has none: start it with an"
                " object store, or name a place yourself, such as s3://bucket/prefix or file:///directory"
            )
        return Checkpoints(f"{root.rstrip('/')}/{job_id}")
    if not _URI.fullmatch(word):
        raise Invalid(f"{CHECKPOINT} must be true, s3://bucket/prefix or file:///directory; it is {text!r}")
    return Checkpoints(word.rstrip("/"))


def _kept(text: str, job_id: JobId, root: str | None) -> tuple[Output, ...]:
    """What of the job's private directory is stored beside its checkpoints."""
    if not text.strip():
        return ()
    try:
        patterns = read_patterns(text)
    except BadPattern as problem:
        raise Invalid(f"{KEEP}: {problem}") from None
    if root is None:
        raise Invalid(
            f"{KEEP} needs a place for files and this daemon has none: start it with an object store"
        )
    uri = f"{root.rstrip('/')}/{job_id}{KEPT_SUFFIX}"
    return (Output(WORKING_DIRECTORY, uri, archived=False, patterns=patterns),)


def _git(text: str) -> GitSource:
    url, _, revision = text.strip().rpartition("@")
    # Without a revision, what stands before the host would be taken for all of the address.
    path = url.partition("://")[2] if "://" in url else url
    if "/" not in path or url.startswith("-") or not _REVISION.fullmatch(revision):
        raise Invalid(
            f"{GIT} must be URL@REVISION, such as https://host/team/code.git@main or ...@4f2a91c; it is"
            f" {without_secrets(text)!r}"
        )
    if (problem := secret_in_git(text)) is not None:
        raise Invalid(problem)
    return GitSource(url, revision)


def secret_in_git(text: str) -> str | None:
    """Why the address of a repository cannot be kept: it has a password or token in it; None when it has none."""
    url = text.strip().rpartition("@")[0]
    if not carries_secret(url):
        return None
    host = host_of(url) or "HOST"
    return (
        f"{GIT} must not hold a password or token, because it is kept and shown; it is {without_secrets(text)!r}:"
        f" leave that part out; {advice(credential_name(host))}"
    )
