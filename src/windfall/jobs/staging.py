"""What has to be brought before an attempt starts and taken away after it, and what is known of its progress.

Values only: the wire writes them, the core carries them, the agent does them. Paths are as the job sees them. Must not
know how anything is moved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

#: Where SageMaker's contract, and our own sandbox, put a job's files.
ML_ROOT = "/opt/ml"
CHECKPOINT_PATH = f"{ML_ROOT}/checkpoints"
#: How an output names the private directory that a process starts in.
WORKING_DIRECTORY = "."


@dataclass(frozen=True, slots=True)
class Mark:
    """One committed and verified checkpoint."""

    #: What a person would call it: a step's directory, or the newest file.
    name: str
    #: When it was committed to the object store.
    at: int
    #: When the state that it holds was captured: work after this moment is not in it.
    state_at: int
    bytes: int
    step: int | None = None


#: Checkpoints, and reports of its loss, of one attempt that are remembered.
MARKS_MAX = 200


T = TypeVar("T")


def remembering(marks: tuple[T, ...], mark: T) -> tuple[T, ...]:
    """The marks of an attempt and one more; when they are too many, every second of the older half is forgotten."""
    if len(marks) < MARKS_MAX:
        return (*marks, mark)
    half = len(marks) // 2
    return (*marks[:half:2], *marks[half:], mark)


@dataclass(frozen=True, slots=True)
class LeftFiles:
    """Files that a process left in its private directory, and that are removed with it."""

    count: int
    bytes: int
    #: The first ones.
    names: tuple[str, ...]
    #: Whether there are more than were counted.
    more: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """What a job says of itself through its progress file; every member may be unknown."""

    at: int
    step: int | None = None
    first_step_at: int | None = None
    restored_step: int | None = None
    saved_step: int | None = None
    #: How long its loop was held up by saving, in all.
    stall_s: float = 0.0
    #: Steps that had been done before by an earlier attempt and were done again.
    steps_redone: int = 0
    loss: float | None = None
    #: How long its loop waited for data, and how long it worked on what it got, in all; None when it does not say.
    data_wait_s: float | None = None
    step_s: float | None = None
    #: How many steps there are in all.
    steps: int | None = None


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """A directory that survives the attempt: kept in the object store while the job runs, back before the next try."""

    #: The prefix in the object store that belongs to this job.
    uri: str
    path: str = CHECKPOINT_PATH
    #: Whether the files must also be found under their own names below the prefix, as SageMaker has it.
    publish: bool = False
    #: Which of how many nodes writes here: they share the prefix, each with files of its own.
    writer: int = 0
    writers: int = 1


@dataclass(frozen=True, slots=True)
class Channel:
    """One input of a training job."""

    name: str
    uri: str
    #: File, FastFile or Pipe.
    mode: str = "File"
    #: S3Prefix, ManifestFile or AugmentedManifestFile.
    kind: str = "S3Prefix"
    #: None or Gzip (Pipe mode alone).
    compression: str | None = None
    #: None or RecordIO (Pipe mode alone).
    record_wrapper: str | None = None
    shuffle_seed: int | None = None
    attributes: tuple[str, ...] = ()
    #: The nodes that its objects are divided among, in their order; none means that each has all of them.
    divided_among: tuple[int, ...] = ()
    #: Which part of how many this node gets.
    part: tuple[int, int] = (0, 1)
    #: The directory that its objects come to; None means that of its name among the inputs.
    path: str | None = None


@dataclass(frozen=True, slots=True)
class Archive:
    """Code that is unpacked before the start: a tar file in the object store."""

    uri: str
    path: str


@dataclass(frozen=True, slots=True)
class GitSource:
    """Code from a repository at one revision; the commit that it stood for is recorded with the first attempt."""

    url: str
    revision: str
    #: None means the job's working directory.
    path: str | None = None


@dataclass(frozen=True, slots=True)
class TextFile:
    """A small file that is written before the start, such as hyperparameters.json."""

    path: str
    content: str


@dataclass(frozen=True, slots=True)
class Output:
    """A directory that goes to the object store when the process has ended."""

    path: str
    #: The object (archived) or the prefix (plain files).
    uri: str
    archived: bool = True
    #: Whether it is also kept when the job failed; never after an interruption.
    when_failed: bool = True
    #: For one archive of several nodes: what their common try is called, and how many they are.
    merged_as: str | None = None
    merged_of: int = 1
    #: Whether these nodes are on several machines, so that their parts meet in the object store.
    merged_in_store: bool = False
    #: Which files of the private working directory it is; `path` then stands for that directory.
    patterns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Staging:
    """All that is brought and taken for one attempt; an attempt without any starts at once."""

    checkpoints: Checkpoints | None = None
    git: GitSource | None = None
    archives: tuple[Archive, ...] = ()
    files: tuple[TextFile, ...] = ()
    channels: tuple[Channel, ...] = ()
    #: Directories that must be there, empty.
    directories: tuple[str, ...] = ()
    outputs: tuple[Output, ...] = ()
    #: Its first 1,024 characters say why the job failed.
    failure_path: str | None = None
    #: Whether the job must see its files under /opt/ml (its own mount where the host allows it).
    wants_ml_root: bool = False
    #: How the credentials and the address of the object store reach the job's environment too.
    shares_object_credentials: bool = False
    #: The names and addresses by which the nodes of a job know one another.
    hosts: tuple[tuple[str, str], ...] = ()
