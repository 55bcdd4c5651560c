"""The sandbox of an attempt that needs more than a plain process, by bubblewrap or, without it, by namespaces.py.

Isolation is graduated because it has a price: a plain start costs about 0.4 ms here, a sandbox about ten
times that. An attempt starts plain unless it asks for shared memory of its own or for a sandbox, or the
agent must hide directories and has no other user to run the job as. A sandbox gives it its own PID
namespace and /proc, /tmp, /dev/shm and IPC, and hides the directories of the daemon except the attempt's
own. One that exists for a checkpoint directory alone keeps the host's /tmp, as a plain attempt has it.

Two rules shape the command:
- Never --die-with-parent: the agent's death must kill no job.
- The job's environment never reaches a process that still has the agent's rights (LD_PRELOAD would hand a
  job root), nor anybody's command line (which all users can read). bubblewrap and setpriv run with a
  clean environment, and a shell that is already the job user reads the job's variables from its standard
  input, a memory file, and replaces itself by the job.

Must not know attempts' life; it only builds commands and tries them out.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence

import msgspec

from windfall.agent.credentials import JobUser
from windfall.agent.host_names import HOSTS
from windfall.agent.sandbox_mounts import TMP, Shown, is_within, plan_mounts

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: The program that takes bubblewrap's options where that is missing.
_NAMESPACES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "namespaces.py")
_PROBE = 37
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z", re.ASCII)
#: Variables that some shells refuse to set; `env` sets them instead.
_SHELL_OWNS = frozenset({"UID", "EUID", "PPID", "SHELLOPTS", "BASHOPTS", "BASH_VERSINFO"})
#: Joins the cgroups named before `--`, then becomes the command after it. Joining must come first, so that
#: no child escapes.
_JOIN = 'while [ "$1" != -- ]; do echo $$ > "$1" || exit 125; shift; done; shift; exec "$@"'
#: Becomes the command after `--` if every path has the device and inode that follow it: a path by which the sandbox
#: was made may have been replaced since it was checked.
_SAME = (
    'while [ "$1" != -- ]; do [ "$(stat -c %d:%i -- "$1")" = "$2" ] || { echo "$1 was replaced" >&2; exit 126; };'
    ' shift 2; done; shift; exec "$@"'
)

BUBBLEWRAP, NAMESPACES = "bubblewrap", "namespaces without bubblewrap"


class SandboxTools(msgspec.Struct, frozen=True):
    """The programs that a sandbox needs, by absolute path."""

    bwrap: str
    #: Found where the agent is root.
    setpriv: str | None
    #: What stands before bubblewrap's own options, where another program takes them.
    before: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """What makes the sandbox, for the user."""
        return NAMESPACES if self.before else BUBBLEWRAP


class SandboxPlan(msgspec.Struct, frozen=True):
    """What one attempt's sandbox looks like."""

    directory: str
    #: What it sees as /tmp; None means the host's own.
    tmp_directory: str | None
    shared_memory_mib: int | None
    hide: tuple[str, ...]
    #: Files to join before anything of the job runs.
    cgroup_files: tuple[str, ...]
    #: Directories of the attempt and where it sees them, in this order.
    binds: tuple[tuple[str, str], ...] = ()
    #: The working directory as the job sees it, where that is one of those.
    seen_directory: str | None = None
    #: `device:inode` that the working directory must have inside; None where it is made by the agent.
    identity: str | None = None
    #: What it sees as /etc/hosts; None means the host's own.
    hosts_file: str | None = None
    #: What it sees of the host's /tmp in its own.
    shown: tuple[Shown, ...] = ()


def find_tools(user: JobUser) -> SandboxTools | None:
    """Return the tools if a sandbox really works here, tried by running one: with bubblewrap, or else without."""
    bwrap, setpriv = find_program("bwrap", DEFAULT_PATH), find_program("setpriv", DEFAULT_PATH)
    is_root = os.geteuid() == 0
    if is_root and setpriv is None:
        return None
    dropping = setpriv if is_root else None
    candidates = [] if bwrap is None else [SandboxTools(bwrap, dropping)]
    candidates.append(without_bubblewrap(dropping))
    return next((tools for tools in candidates if _works(tools, user)), None)


def without_bubblewrap(setpriv: str | None) -> SandboxTools:
    """The tools of a host that has no bubblewrap."""
    return SandboxTools(sys.executable, setpriv, ("-I", "-S", _NAMESPACES))


def _works(tools: SandboxTools, user: JobUser) -> bool:
    """Whether a sandbox runs what it is given: it ends with a code that nothing else ends with."""
    command = sandbox_command(tools, user, SandboxPlan("/usr", "/var/tmp", 1, (), ()))
    script = os.memfd_create("sandbox-probe")
    try:
        os.write(script, job_script(["sh", "-c", f"exit {_PROBE}"], {"PATH": DEFAULT_PATH}))
        os.lseek(script, 0, os.SEEK_SET)
        quiet = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        actions = [
            (os.POSIX_SPAWN_DUP2, script, 0),
            (os.POSIX_SPAWN_DUP2, quiet, 1),
            (os.POSIX_SPAWN_DUP2, quiet, 2),
        ]
        pid = os.posix_spawn(command[0], command, {"PATH": DEFAULT_PATH}, file_actions=actions)
        _, status = os.waitpid(pid, 0)
        os.close(quiet)
    except OSError:
        return False
    finally:
        os.close(script)
    return os.waitstatus_to_exitcode(status) == _PROBE


def sandbox_command(tools: SandboxTools, user: JobUser, plan: SandboxPlan) -> list[str]:
    """Return the command that reads a `job_script` from its standard input and runs it in the sandbox."""
    own_tmp = () if plan.tmp_directory is None else (TMP,)
    private = (*own_tmp, "/dev/shm", *plan.hide)
    mounts = plan_mounts(plan.binds, private)
    command = [tools.bwrap, *tools.before, *mounts.root, *mounts.covers]
    command += ["--unshare-pid", "--unshare-ipc", "--proc", "/proc", "--perms", "1777"]
    if plan.shared_memory_mib is not None:
        command += ["--size", str(plan.shared_memory_mib << 20)]
    command += ["--tmpfs", "/dev/shm"]
    if plan.tmp_directory is not None:
        command += ["--bind", plan.tmp_directory, TMP]
    for hidden in plan.hide:
        command += ["--tmpfs", hidden]
    for seen in plan.shown:
        if seen.target is not None:
            command += ["--symlink", seen.target, seen.path]
        else:
            command += ["--bind", seen.path, seen.path, *_hiding_inside(plan, seen.path)]
    # Only what was covered is shown again: binding a parent of the covered would uncover all of it.
    covers = [covered for covered in private if is_within(plan.directory, covered)]
    if covers:
        # What lies between would be made with our own umask, and the job could not pass.
        for parent in _between(max(covers, key=len), plan.directory):
            command += ["--perms", "0755", "--dir", parent]
        command += ["--bind", plan.directory, plan.directory, *_hiding_inside(plan, plan.directory)]
    if plan.hosts_file is not None:
        command += ["--ro-bind", plan.hosts_file, HOSTS]
    command += [*mounts.binds, "--chdir", plan.seen_directory or plan.directory, "--"]
    if user.drop:  # An agent that is not root has no rights beyond those of the job's user.
        command += _checked(plan)
    if user.drop and tools.setpriv is not None:
        groups = ["--groups", ",".join(map(str, user.groups))] if user.groups else ["--clear-groups"]
        command += [tools.setpriv, "--reuid", str(user.uid), "--regid", str(user.gid), *groups]
        command += ["--inh-caps=-all", "--"]
    command += ["/bin/sh", "-s"]
    if plan.cgroup_files:
        command = ["/bin/sh", "-c", _JOIN, "sh", *plan.cgroup_files, "--", *command]
    return command


def _checked(plan: SandboxPlan) -> list[str]:
    """The words before the command that end the attempt where a path was replaced since it was checked."""
    identities = [] if plan.identity is None else [".", plan.identity]
    for seen in plan.shown:
        identities += [seen.path, seen.identity] if seen.target is None else []
    return ["/bin/sh", "-c", _SAME, "sh", *identities, "--"] if identities else []


def _hiding_inside(plan: SandboxPlan, directory: str) -> list[str]:
    """Hide again what a directory holds that must not be seen, as a home directory does."""
    return [word for hidden in plan.hide if is_within(hidden, directory) for word in ("--tmpfs", hidden)]


def _between(above: str, below: str) -> list[str]:
    """Return the directories on the way from one to another below it, both left out."""
    steps = os.path.relpath(below, above).split("/")[:-1]
    return [os.path.join(above, *steps[:count]) for count in range(1, len(steps) + 1)]


def job_script(argv: Sequence[str], environment: Mapping[str, str], feed: str = "< /dev/null") -> bytes:
    """Return the shell script that sets this environment and becomes the job, fed as the redirection says."""
    lines = []
    odd = []
    for name, value in environment.items():
        if _IDENTIFIER.match(name) and name not in _SHELL_OWNS:
            lines.append(f"export {name}={shlex.quote(value)}")
        else:
            odd.append(shlex.quote(f"{name}={value}"))
    command = " ".join(shlex.quote(word) for word in argv)
    prefix = f"env -- {' '.join(odd)} " if odd else ""
    lines.append(f"exec {prefix}{command} {feed}")
    return ("\n".join(lines) + "\n").encode(errors="surrogateescape")


def find_program(name: str, path: str) -> str | None:
    """Return the absolute path of a program as exec would find it, or None."""
    for directory in path.split(":"):
        candidate = os.path.join(directory or ".", name)
        if os.access(candidate, os.X_OK) and os.path.isfile(candidate):
            return candidate
    return None
