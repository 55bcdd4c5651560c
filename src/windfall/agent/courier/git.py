"""A fresh checkout of one commit of a repository, by the `git` program.

Everything runs with the job's rights, never through a shell, and neither the address nor the revision can be
taken for an option; only https, ssh and git are spoken, and file where the job may name paths of the host, also after
a redirection and in submodules. Only a fetch has a credential. Decides what is asked of git; must not know attempts.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from windfall.agent.courier.errors import CannotBring
from windfall.agent.courier.git_access import Access, opened
from windfall.agent.sandbox import DEFAULT_PATH, find_program
from windfall.jobs.git_credentials import BadCredential, GitCredential, advice, decode_credential
from windfall.jobs.git_urls import HIDDEN, without_secrets
from windfall.jobs.repositories import LOCAL_SCHEME, REMOTE_SCHEMES, repository_problem

_WITHIN_S = 600
_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+@{}^~-]{0,249}\Z", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}\Z", re.ASCII)
#: What git adds to every failure of a remote, over two lines.
_ADVICE = ("Please make sure you have the correct access rights", "and the repository exists.")
#: ssh says it after a page of capitals.
_OTHER_HOST_KEY = "Host key verification failed"
_OTHER_HOST_KEY_MEANS = (
    "the key that the host shows is not a known one, so it may not be the host that it claims to be;"
    " if the key is right, an admin gives it with windfall secret git --known-hosts"
)
_NO_ACCESS = (
    "could not read Username",
    "could not read Password",
    "Authentication failed",
    "Could not read from remote repository",
    "Repository not found",
    "Permission denied",
)
_PRIVATE = "it does not exist, or it is private and this machine has no access to it"
_MOST_WORDS = 600
_NO_ACCESS_NEEDED = Access()
_CONFIGURATION = "[safe]\n\tdirectory = *\n"


def checked_url(url: str, *, local: bool) -> str:
    """Return an address that git may be given; CannotBring for any other. `local` allows paths of the host."""
    problem = repository_problem(url, local=local)
    if problem is not None:
        raise CannotBring(problem)
    return f"{LOCAL_SCHEME}://{url}" if url.startswith("/") else url


def checked_revision(revision: str) -> str:
    """Return a branch, tag or commit that git may be given; CannotBring for anything else."""
    if not _REVISION.match(revision) or ".." in revision:
        raise CannotBring(f'"{revision}" is not a revision: give a branch, a tag or a commit')
    return revision


@dataclass(frozen=True, slots=True)
class Permission:
    """The credential that may be used for an address, and whether there is one."""

    #: Its kept name; empty where the address can have none.
    name: str = ""
    credential: GitCredential | None = None

    @classmethod
    def of(cls, name: str, value: str | None) -> Permission:
        """From the value of the secret; CannotBring where that is not a credential."""
        try:
            return cls(name, decode_credential(value) if value is not None else None)
        except BadCredential as problem:
            raise CannotBring(
                f"the credential for Git cannot be used: {problem}; {advice(name, 'replace')}"
            ) from None

    def explained(self, words: str) -> str:
        """What git says of a failed fetch, with what can be done, and without the token."""
        if self.credential is not None and self.credential.token:
            words = words.replace(self.credential.token, HIDDEN)
        said = words.removesuffix(f"; {_PRIVATE}")
        if not self.name or said == words:
            return words
        # What can be done comes first, because Batch cuts long reasons.
        if self.credential is None:
            return f"it does not exist, or it is private; {advice(self.name)}; {said}"
        return f"the credential for its host does not open it; {advice(self.name, 'replace')}; {said}"


class Checkout:
    """One checkout into one directory."""

    def __init__(
        self,
        directory: str,
        scratch: str,
        owner: tuple[int, int] | None,
        mark: Mapping[str, str],
        *,
        apart: bool = False,
        local: bool = False,
        permission: Permission | None = None,
    ) -> None:
        program = find_program("git", os.environ.get("PATH") or DEFAULT_PATH)
        if program is None:
            raise CannotBring(
                "code from Git needs the program git on the machine that runs the job: install it"
            )
        self._program = program
        self._directory = directory
        self._owner = owner
        #: Whether the job's user is another one than the agent's.
        self._apart = apart
        self._local = local
        self._scratch = scratch
        self._permission = permission or Permission()
        self.environment = {**self._make_environment(scratch), **mark}

    def _make_environment(self, scratch: str) -> dict[str, str]:
        environment = {
            "PATH": os.environ.get("PATH") or DEFAULT_PATH,
            "HOME": os.environ.get("HOME", "/"),
            "LC_ALL": "C",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ALLOW_PROTOCOL": ":".join((*REMOTE_SCHEMES, *((LOCAL_SCHEME,) if self._local else ()))),
            "GIT_SSH_COMMAND": "ssh -o BatchMode=yes",
        }
        for name in (
            "SSH_AUTH_SOCK",
            "SSL_CERT_FILE",
            "SSL_CERT_DIR",
            "GIT_SSL_CAINFO",
            "http_proxy",
            "https_proxy",
            "no_proxy",
        ):
            if name in os.environ:
                environment[name] = os.environ[name]
        if self._apart:
            # The job user must neither see nor need what the agent's user has at home.
            path = f"{scratch}/gitconfig"
            with open(path, "w", encoding="ascii") as file:
                file.write(_CONFIGURATION)
            os.chmod(path, 0o644)
            environment |= {"HOME": self._directory, "GIT_CONFIG_GLOBAL": path, "GIT_CONFIG_NOSYSTEM": "1"}
            environment.pop("SSH_AUTH_SOCK", None)
        return environment

    def bring(self, url: str, revision: str) -> str:
        """Check a revision out and return its commit; the directory must be empty."""
        url, revision = checked_url(url, local=self._local), checked_revision(revision)
        self._git("init", "--quiet", ".")
        self._git("remote", "add", "origin", url)
        with opened(self._permission.credential, url, self._scratch, self._owner) as access:
            commit = self._fetch(url, revision, access)
        self._git("-c", "advice.detachedHead=false", "checkout", "--quiet", "--force", "--detach", commit)
        return commit

    def _fetch(self, url: str, revision: str, access: Access) -> str:
        """Fetch no more than the revision where the server allows it, everything where it does not."""
        shallow = self._try("fetch", "--quiet", "--depth=1", "--no-tags", "origin", revision, access=access)
        if shallow.returncode == 0:
            commit = self._resolve("FETCH_HEAD")
            # A name that looks like a commit is taken for nothing else.
            if commit is not None and (not _COMMIT.match(revision) or commit == revision):
                return commit
        whole = self._try(
            "fetch",
            "--quiet",
            "--tags",
            "origin",
            "+refs/heads/*:refs/remotes/origin/*",
            "+refs/tags/*:refs/tags/*",
            access=access,
        )
        if whole.returncode != 0:
            words = self._permission.explained(told_by_git(whole.stderr))
            raise CannotBring(f"git cannot fetch {without_secrets(url)}: {words}")
        candidates = (
            [revision] if _COMMIT.match(revision) else [f"origin/{revision}", f"tags/{revision}", revision]
        )
        for candidate in candidates:
            commit = self._resolve(candidate)
            if commit is not None:
                return commit
        raise CannotBring(
            f"{without_secrets(url)} has no revision {revision}: push it, or name a branch, tag or commit that is there"
        )

    def _resolve(self, name: str) -> str | None:
        answer = self._try("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        commit = answer.stdout.strip()
        return commit if answer.returncode == 0 and _COMMIT.match(commit) else None

    def _git(self, *arguments: str) -> None:
        answer = self._try(*arguments)
        if answer.returncode != 0:
            raise CannotBring(f"git {arguments[0]} failed: {told_by_git(answer.stderr)}")

    def _try(self, *arguments: str, access: Access = _NO_ACCESS_NEEDED) -> subprocess.CompletedProcess[str]:
        command: Sequence[str] = [self._program, "-C", self._directory, *access.options, *arguments]
        uid, gid = self._owner if self._owner is not None else (None, None)
        try:
            return subprocess.run(
                command,
                env={**self.environment, **access.variables},
                pass_fds=access.descriptors,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_WITHIN_S,
                check=False,
                cwd="/",
                user=uid,
                group=gid,
                extra_groups=[] if gid is not None else None,
                umask=0o022,
            )
        except subprocess.TimeoutExpired:
            raise CannotBring(f"git {arguments[0]} took longer than {_WITHIN_S} s") from None


def told_by_git(text: str) -> str:
    """What git says of a failure: the lines that name it, without its general advice and without secrets.

    Where it is about access, the repository may be private or missing; servers do not tell which.
    """
    if _OTHER_HOST_KEY in text:
        return _OTHER_HOST_KEY_MEANS
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if line not in _ADVICE]
    words = without_secrets("; ".join(telling) or "it gave no reason")[:_MOST_WORDS]
    return f"{words}; {_PRIVATE}" if any(sign in words for sign in _NO_ACCESS) else words
