"""What a job of `windfall run` takes along of the place where the user stands: the directory and some variables.

One list of names decides it, so that nothing unknown, and no secret, gets into a job's record. Pure: the
environment and what the daemon says about the job's user come in as arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

#: Where programs and packages are found. The first two are directories that the job's user must be able to enter.
ENVIRONMENTS = ("VIRTUAL_ENV", "CONDA_PREFIX")
_PROGRAMS = (
    *("PATH", *ENVIRONMENTS, "CONDA_DEFAULT_ENV", "PYTHONPATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH"),
    *("CUDA_HOME", "CUDA_PATH", "JAVA_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
)
#: Where downloads and compiled code are kept.
_CACHES = (
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "PIP_CACHE_DIR", "UV_CACHE_DIR", "MPLCONFIGDIR"),
    *(
        "HF_HOME",
        "HF_HUB_CACHE",
        "HF_DATASETS_CACHE",
        "HUGGINGFACE_HUB_CACHE",
        "TRANSFORMERS_CACHE",
        "NLTK_DATA",
    ),
    *("TORCH_HOME", "TORCH_EXTENSIONS_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH"),
    *(
        "JAX_COMPILATION_CACHE_DIR",
        "KERAS_HOME",
        "TFDS_DATA_DIR",
        "WANDB_DIR",
        "WANDB_CACHE_DIR",
        "NUMBA_CACHE_DIR",
    ),
)
#: How programs behave.
_HABITS = (
    *("LANG", "LANGUAGE", "TZ", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "KERAS_BACKEND", "WANDB_MODE"),
    *("WANDB_PROJECT", "OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM"),
)
_PREFIX = "LC_"
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_IDENTITY = ("USER", "LOGNAME")
#: Secrets that many people have in their shell, and the command that puts each where its tool finds it without one.
_LOGINS = {"HF_TOKEN": "hf auth login", "WANDB_API_KEY": "wandb login"}
#: Python holds back what it prints to anything but a terminal; a log is read like one.
_UNBUFFERED = {"PYTHONUNBUFFERED": "1"}


@dataclass(frozen=True, slots=True)
class ExpectedJobUser:
    """The user that the job will run as, and what it may do in the directories that were asked about."""

    name: str
    host: str
    enters: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class TakenAlong:
    """What is taken along, and what the user should know about it."""

    variables: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


def directories_to_check(environment: Mapping[str, str], directory: str) -> list[str]:
    """The directories about which the daemon is asked, in the order in which they matter."""
    named = [directory, *(environment.get(name, "") for name in (*ENVIRONMENTS, "HOME"))]
    return list(dict.fromkeys(path for path in named if path.startswith("/")))


def take_along(environment: Mapping[str, str], user: ExpectedJobUser) -> TakenAlong:
    """The variables that a job gets of this environment."""
    names = {*_PROGRAMS, *_CACHES, *_HABITS}
    taken = {name: value for name, value in environment.items() if name in names or name.startswith(_PREFIX)}
    taken |= {name: environment[name] for name in _PROXIES if _has_no_password(environment.get(name))}
    home = environment.get("HOME", "")
    if home in user.enters:
        taken["HOME"] = home
    if user.name == environment.get("USER", environment.get("LOGNAME")):
        taken |= {name: environment[name] for name in _IDENTITY if name in environment}
    taken = {name: value for name, value in taken.items() if is_utf8(value)}
    remarks = [
        f"{name} is not taken along, because a job's variables are stored: {_instead(login, 'HOME' in taken)}"
        for name, login in _LOGINS.items()
        if environment.get(name)
    ]
    return TakenAlong({**_UNBUFFERED, **dict(sorted(taken.items()))}, tuple(remarks))


def cannot_enter(
    environment: Mapping[str, str], directory: str, user: ExpectedJobUser, own_host: str
) -> str | None:
    """Why a job cannot start in this directory with this environment, and what to do; None when it can."""
    named = {directory: "the directory"}
    named |= {environment[name]: "the environment" for name in ENVIRONMENTS if environment.get(name)}
    closed = next((path for path in named if path.startswith("/") and path not in user.enters), None)
    if closed is None:
        return None
    where = "" if user.host == own_host else f" on {user.host}, another machine,"
    own = environment.get("USER", "")
    if own == "root":
        mapped = " start the daemon with --job-user NAME, an account that can (root, if all jobs are yours),"
    elif own in ("", user.name):
        mapped = ""
    else:
        mapped = (
            f" use a key for your own account (if the daemon is root: `windfall keys create --user {own}`),"
        )
    return (
        f"jobs of this daemon run as {user.name}{where} and cannot enter {named[closed]} {closed}: use one that"
        f" {user.name} can enter,{mapped} start a daemon of your own with `windfall up --data DIR`, or use --clean to"
        " start in an empty directory"
    )


def cannot_write(directory: str, user: ExpectedJobUser) -> str | None:
    """What to say about a directory that the job may read and not write."""
    if directory in user.writes:
        return None
    return (
        f"the job runs as {user.name}, which cannot write to {directory}: files that it writes there fail; let"
        f" {user.name} write there, or run it from a directory that {user.name} may write to"
    )


def is_utf8(text: str) -> bool:
    """Whether a text of the system can be sent; a name of a file may be any bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _has_no_password(url: str | None) -> bool:
    if not url:
        return False
    try:
        return "@" not in url or urlsplit(url).username is None
    except ValueError:
        return False


def _instead(login: str, sees_home: bool) -> str:
    if sees_home:
        return f"run `{login}` once, and the job finds it in your home directory"
    return "keep it with `windfall secret set`, and name it in a job definition"
