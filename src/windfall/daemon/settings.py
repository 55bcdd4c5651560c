"""Settings, read once from the command line, the environment and a TOML file, in this order of precedence.

Everything is checked here, at start, with a text that names the setting and what it may be. Nothing else in Windfall
reads the environment for settings.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from windfall.daemon.errors import BadSetting

ENVIRONMENT_PREFIX = "WINDFALL_"
CONFIG_NAME = "windfall.toml"


def default_data() -> Path:
    """Where Windfall keeps its things: WINDFALL_DATA, or the place that the system has for it."""
    if told := os.environ.get("WINDFALL_DATA"):
        return Path(told)
    if os.geteuid() == 0:
        return Path("/var/lib/windfall")
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "windfall"


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of the daemon. The comment above each is its documentation."""

    #: Directory of keys, store, logs and attempts.
    data: Path
    #: Address to listen on. Anything but loopback lets others reach the API.
    host: str = "127.0.0.1"
    #: Port to listen on; 0 takes a free one.
    port: int = 8470
    #: vCPUs to offer to jobs; the machine's own by default.
    vcpus: int | None = None
    #: Memory to offer to jobs, in MiB; the machine's own by default.
    memory_mib: int | None = None
    #: GPUs to offer: auto, none or simulated:N.
    gpus: str = "auto"
    #: Where state is kept: sqlite:///PATH or postgresql://...; a SQLite file under `data` by default.
    store: str | None = None
    #: The user that jobs run as when the daemon is root.
    job_user: str = "nobody"
    #: The account id in ARNs.
    account_id: str = "123456789012"
    #: The region that `windfall env` tells clients; requests of any region are served.
    region: str = "us-east-1"
    #: Days that finished jobs stay visible.
    retention_days: float = 7.0
    #: Seconds after which a job that others overtake gets a place reserved.
    reserve_after_s: float = 60.0
    #: Seconds after which an idle instance goes away.
    idle_after_s: float = 300.0
    #: Seconds between SIGTERM and SIGKILL for a job that is stopped.
    stop_grace_s: float = 30.0

    @property
    def store_url(self) -> str:
        """The store to open."""
        return self.store or f"sqlite:///{(self.data / 'store' / 'windfall.db').absolute()}"


_KINDS: dict[str, type] = {
    "port": int,
    "vcpus": int,
    "memory_mib": int,
    "retention_days": float,
    "reserve_after_s": float,
    "idle_after_s": float,
    "stop_grace_s": float,
    "data": Path,
}
_RANGES: dict[str, tuple[float, float]] = {
    "port": (0, 65535),
    "vcpus": (1, 1_000_000),
    "memory_mib": (4, 1_000_000_000),
    "retention_days": (0, 36_500),
    "reserve_after_s": (0, 86_400 * 365),
    "idle_after_s": (0, 86_400 * 365),
    "stop_grace_s": (0, 86_400),
}
_PATTERNS: dict[str, tuple[str, str]] = {
    "gpus": (r"auto|none|simulated:[1-9][0-9]{0,3}", "auto, none or simulated:N"),
    "account_id": (r"[0-9]{12}", "twelve digits"),
    "region": (r"[a-z0-9-]{1,40}", "a region such as us-east-1"),
    "store": (r"(sqlite:///|postgresql://|/).+", "sqlite:///PATH or postgresql://USER@HOST/DATABASE"),
    "host": (r"[A-Za-z0-9.:_-]+", "an address or host name"),
    "job_user": (r"[A-Za-z0-9_][A-Za-z0-9_.-]*", "a user name of this host"),
}


def read_settings(options: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> Settings:
    """Put the settings together; `options` are the command line's, None meaning not given."""
    environ = os.environ if environment is None else environment
    known = {field.name for field in fields(Settings)}
    given = {name: value for name, value in options.items() if value is not None}
    data = Path(given.pop("data", None) or default_data()).absolute()
    from_file = _read_file(data / CONFIG_NAME, known)
    from_environment = {
        name: environ[key]
        for name in known - {"data"}
        if (key := ENVIRONMENT_PREFIX + name.upper()) in environ
    }
    merged: dict[str, Any] = {**from_file, **from_environment, **given}
    return replace(Settings(data), **{name: _checked(name, value) for name, value in merged.items()})


def _read_file(path: Path, known: set[str]) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        content = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadSetting(f"{path} is not valid TOML: {error}") from None
    unknown = sorted(set(content) - known | ({"data"} & set(content)))
    if unknown:
        raise BadSetting(
            f"{path} has unknown settings {', '.join(unknown)}; known are {', '.join(sorted(known - {'data'}))}"
        )
    return content


def _checked(name: str, value: Any) -> Any:
    kind = _KINDS.get(name, str)
    try:
        value = kind(value)
    except (TypeError, ValueError):
        raise BadSetting(f"{name} must be a number, not {value!r}") from None
    if name in _RANGES:
        low, high = _RANGES[name]
        if not low <= value <= high:
            raise BadSetting(f"{name} must be between {low:,} and {high:,}, not {value:,}")
    if name in _PATTERNS:
        pattern, meaning = _PATTERNS[name]
        if not re.fullmatch(pattern, value):
            raise BadSetting(f"{name} must be {meaning}, not {value!r}")
    return value
