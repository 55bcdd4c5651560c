"""Where the files of a staged attempt really are, and where its job sees them.

All of them are below one private directory, `<task>.ml`. In the sandbox it is bound at /opt/ml, and a
checkpoint directory that the job wants elsewhere is bound there; without a sandbox the job is given the real
paths instead. Decides names alone: nothing here touches a file.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

import msgspec

from windfall.agent.errors import AgentError
from windfall.agent.host_names import training_hosts
from windfall.jobs.staging import ML_ROOT, Staging

#: What the name of the private directory has in addition to that of the working directory.
STAGED = ".ml"
#: What belongs to us in the private directory; the job may not change it.
OWN = ".windfall"
NOTICE = f"{OWN}/notice.json"
REBALANCE = f"{OWN}/rebalance.json"
#: Where channels are brought to.
INPUT = "input/data"
#: The job writes here, so the directory is its own.
PROGRESS_DIRECTORY = f"{OWN}/progress"
PROGRESS = f"{PROGRESS_DIRECTORY}/progress.json"
_CHECKPOINTS_ELSEWHERE = f"{OWN}/checkpoints"
#: Where a directory of the job must not be bound: programs from there run with the agent's rights before the job does.
_SYSTEM = (
    "bin",
    "boot",
    "dev",
    "etc",
    "lib",
    "lib32",
    "lib64",
    "libx32",
    "proc",
    "run",
    "sbin",
    "sys",
    "usr",
)
#: /opt/ml as a path of its own, not as a part of another one such as /opt/mlflow or /data/opt/ml.
_ML_ROOT_IN_TEXT = re.compile(rf"(?<![\w./-]){re.escape(ML_ROOT)}(?![\w.-])")
#: A training host as a word of its own, not as a part of another name such as that of a log stream.
_TRAINING_HOST_IN_TEXT = re.compile(r"(?<![\w./-])algo-[1-9][0-9]*(?![\w.-])")


class BadPlace(AgentError):
    """A path that cannot be staged."""


class Places(msgspec.Struct, frozen=True):
    """The names of one attempt's files."""

    #: The private directory.
    root: str
    staging: Staging
    #: Whether the job sees the private directory at /opt/ml.
    sandboxed: bool

    def real(self, path: str) -> str:
        """Return where a path of the job is on this host; BadPlace for one that is not the attempt's own."""
        path = posixpath.normpath(path)
        if path == ML_ROOT:
            return self.root
        if path.startswith(f"{ML_ROOT}/"):
            inside = path[len(ML_ROOT) + 1 :]
            if inside.split("/", 1)[0] == OWN:
                raise BadPlace(f"{path} is used by Windfall itself: choose another path below {ML_ROOT}")
            return f"{self.root}/{inside}"
        elsewhere = self.checkpoints_elsewhere
        if elsewhere is not None and (path == elsewhere or path.startswith(f"{elsewhere}/")):
            return f"{self.root}/{_CHECKPOINTS_ELSEWHERE}{path[len(elsewhere) :]}"
        raise BadPlace(f"{path} is not below {ML_ROOT}: only what is there can be staged")

    @property
    def working_directory(self) -> str:
        """The private directory that the process starts in if nothing else is said; it lies beside this one."""
        return self.root.removesuffix(STAGED)

    def inside(self, path: str) -> str:
        """Return a path of the job relative to the private directory."""
        return self.real(path)[len(self.root) + 1 :] or "."

    def seen(self, relative: str) -> str:
        """Return where the job sees what is at `relative` in the private directory."""
        return f"{ML_ROOT if self.sandboxed else self.root}/{relative}"

    @property
    def checkpoints_elsewhere(self) -> str | None:
        """The checkpoint directory's path when the job does not want it below /opt/ml."""
        if self.staging.checkpoints is None:
            return None
        path = posixpath.normpath(self.staging.checkpoints.path)
        return None if path == ML_ROOT or path.startswith(f"{ML_ROOT}/") else path

    @property
    def checkpoint_directory(self) -> str | None:
        """Where the checkpoint directory really is."""
        kept = self.staging.checkpoints
        return None if kept is None else self.real(kept.path)

    def kept_directories(self, directory: str) -> list[str]:
        """Return the directories that the job finds and must not replace, relative to the private one.

        `directory` is the working directory on this host. Code from Git stays the job's own: git wants it so.
        """
        staging = self.staging
        kept = [OWN, PROGRESS_DIRECTORY, *map(self.inside, staging.directories)]
        kept += [self.inside(output.path) for output in staging.outputs if not output.patterns]
        if staging.failure_path is not None:
            kept.append(posixpath.dirname(self.inside(staging.failure_path)) or ".")
        if staging.checkpoints is not None:
            kept.append(self.inside(staging.checkpoints.path))
        if directory.startswith(f"{self.root}/"):
            kept.append(directory[len(self.root) + 1 :])
        code = None
        if staging.git is not None and staging.git.path is not None:
            code = self.inside(staging.git.path)
        return [path for path in kept if code is None or not f"{path}/".startswith(f"{code}/")]

    def binds(self) -> Iterator[tuple[str, str]]:
        """Yield what the sandbox shows where: real path and path in the sandbox."""
        yield self.root, ML_ROOT
        if self.checkpoints_elsewhere is not None:
            yield f"{self.root}/{_CHECKPOINTS_ELSEWHERE}", self.checkpoints_elsewhere

    def translated(self, text: str) -> str:
        """Return a text of the job with real paths and addresses, where no sandbox makes them unnecessary."""
        if self.sandboxed:
            return text
        text = _ML_ROOT_IN_TEXT.sub(lambda _: self.root, text)
        hosts = dict(training_hosts(self.staging))
        if hosts:
            # Where the file of host names is the machine's own, a training host goes by its address.
            text = _TRAINING_HOST_IN_TEXT.sub(lambda found: hosts.get(found[0], found[0]), text)
        elsewhere = self.checkpoints_elsewhere
        if elsewhere is not None:
            whole = re.compile(rf"(?<![\w./-]){re.escape(elsewhere)}(?![\w.-])")
            text = whole.sub(lambda _: f"{self.root}/{_CHECKPOINTS_ELSEWHERE}", text)
        return text

    def environment(self, port: int) -> dict[str, str]:
        """Return the variables by which a job finds its files and its instance's metadata."""
        variables = {
            "WINDFALL_NOTICE_FILE": self.seen(NOTICE),
            "WINDFALL_REBALANCE_FILE": self.seen(REBALANCE),
            "WINDFALL_PROGRESS_FILE": self.seen(PROGRESS),
        }
        if port:
            variables["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = f"http://127.0.0.1:{port}/"
        if self.staging.checkpoints is not None:
            path = posixpath.normpath(self.staging.checkpoints.path)
            variables["WINDFALL_CHECKPOINT_DIR"] = path if self.sandboxed else self.real(path)
        if not self.sandboxed:
            variables["SAGEMAKER_BASE_DIR"] = self.root
        return variables


def check_bind(seen: str) -> None:
    """Refuse a path in the sandbox that would replace a part of the system; `seen` has its symbolic links resolved."""
    first = seen.strip("/").split("/", 1)[0]
    if not seen.startswith("/") or first in ("", *_SYSTEM):
        raise BadPlace(
            f"{seen} belongs to the system: choose a checkpoint directory such as {ML_ROOT}/checkpoints"
        )


def wants_own_root(staging: Staging) -> bool:
    """Tell whether a job is better off seeing its files where it expects them, at the price of a sandbox."""
    return staging.wants_ml_root or staging.checkpoints is not None
