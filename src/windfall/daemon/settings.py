"""Settings, read once from the command line, the environment and a TOML file, in this order of precedence.

Everything is validated here, at start, with an error that names the setting and the allowed values. Nothing else in
Windfall reads the environment for settings.
"""

from __future__ import annotations

import os
import pwd
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from windfall.agent.errors import AgentError
from windfall.daemon.errors import BadSetting
from windfall.daemon.job_users import uids_for_tenants
from windfall.daemon.setting_forms import KINDS, PATTERNS, RANGES
from windfall.jobs.log_limits import NO_LIMIT, log_limit_bytes

ENVIRONMENT_PREFIX = "WINDFALL_"
CONFIG_NAME = "windfall.toml"
#: The bucket that the embedded S3 server begins with.
S3_BUCKET = "windfall"
#: What comes before the path of a set of recorded GPUs.
RECORDED = "recorded:"
#: Sampling more often than this would cost the jobs more than it is worth.
_LEAST_SAMPLE_S = 0.1


#: The data directory of a daemon of root.
SYSTEM_DATA = Path("/var/lib/windfall")


def default_data() -> Path:
    """The data directory: WINDFALL_DATA, or the system's usual place for it."""
    if named := os.environ.get("WINDFALL_DATA"):
        return Path(named)
    if os.geteuid() == 0:
        return SYSTEM_DATA
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
    #: Names, with commas between them, under which a proxy serves the page to browsers; addresses and this host's names
    #: always work.
    page_hosts: str | None = None
    #: vCPUs to offer to jobs; the machine's own by default.
    vcpus: int | None = None
    #: Memory to offer to jobs, in MiB; the machine's own by default.
    memory_mib: int | None = None
    #: GPUs to offer: auto, none, simulated:N, or recorded:PATH (a set of devices described in a JSON file).
    gpus: str = "auto"
    #: Where state is kept: sqlite:///PATH or postgresql://...; a SQLite file under `data` by default.
    store: str | None = None
    #: On PostgreSQL: seconds after which another daemon leads when the leader is not heard of.
    lease_s: float = 5.0
    #: Run no job on the daemon's own host, only on hosts that were added or on Ray; for daemons that share a PostgreSQL
    #: and no data directory.
    hosts_only: bool = False
    #: Begin without the other data directories that have used the PostgreSQL; jobs under their agents are lost.
    forget_directories: bool = False
    #: Address at which other daemons of the store reach this one, http://HOST:PORT; where it listens by default.
    advertise: str | None = None
    #: The user that jobs run as when the daemon is root.
    job_user: str = "nobody"
    #: Uids for tenants when the daemon is root: FIRST-LAST gives each tenant its own, none runs all jobs as job_user.
    job_users: str | None = None
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
    #: Seconds that a job takes to get a place and work there, until its own are measured; for jobs with a deadline.
    changeover_s: float = 120.0
    #: Seconds between SIGTERM and SIGKILL for a job that is stopped.
    stop_grace_s: float = 30.0
    #: Where checkpoints go: file:///PATH or s3://BUCKET/PREFIX; a directory under `data` by default.
    objects: str | None = None
    #: Start a real S3 server (needs the extra `s3`), tell clients of it, and keep `objects` in it by default.
    s3: bool = False
    #: Port of that S3 server; 0 takes a free one.
    s3_port: int = 8471
    #: Port of the usher, which answers the requests of endpoints: 0 takes a free one, and so does 8472 if it is in use.
    usher_port: int = 8472
    #: Address of this host where that S3 server listens too, for jobs on other machines; unencrypted. Loopback alone by
    #: default.
    s3_listen: str | None = None
    #: With an S3 of your own: ARN of the role whose temporary credentials jobs get there, by its STS. None gives none.
    job_role: str | None = None
    #: Seconds of notice for a job whose place is taken back.
    notice_s: float = 120.0
    #: Configuration file of ssh for hosts, in place of the user's own.
    ssh_config: str | None = None
    #: Seconds after which a machine whose agent does not answer is lost, and its jobs go on elsewhere.
    lost_after_s: float = 300.0
    #: Whether jobs also find the notice at 169.254.169.254, as on EC2; needs root, and a host that is not on EC2.
    link_local_metadata: bool = False
    #: Where this host learns that EC2 takes it away: auto (asks EC2's own metadata, on EC2), off, or http://ADDRESS.
    ec2_metadata: str = "auto"
    #: What jobs are: process, container, or auto (containers where an engine answers and the image is not mapped).
    runtime: str = "auto"
    #: Socket of the Docker or Podman engine; found in the usual places by default, `none` never looks.
    container_socket: str | None = None
    #: Seconds between two samples of each running job (GPUs, CPU, memory, disk, network), 0.1 or more; 0 takes none.
    sample_every_s: float = 2.0
    #: What the log of one attempt may have at most, such as 500m or 10g, from 1m on; none for no limit. Beyond it the
    #: beginning and the newest part are kept.
    job_log_limit: str = "10g"
    #: File that gets a line of JSON for every change of a job's state, in the form of EventBridge's events.
    events_file: str | None = None
    #: URL, http:// or https://, that the same events are posted to.
    events_webhook: str | None = None
    #: File with the bearer token for that URL; nobody else may be able to read it (mode 600).
    events_webhook_token_file: str | None = None
    #: URL that ticks of schedules with a DeadLetterConfig are posted to when they fail; by default they go to files.
    dead_letter_webhook: str | None = None
    #: How the Ray cluster is reached: a command that runs a program on one of its nodes (`ssh ubuntu@head`), or local.
    ray: str | None = None
    #: The Python of the cluster, as that command finds it.
    ray_python: str = "python3"
    #: Whether a cluster without token authentication is accepted.
    ray_trusts_network: bool = False
    #: The engine of compute environments that name none: local, simulated, hosts or ray.
    engine: str = "local"
    #: The engine that SageMaker training jobs run on; `engine` by default.
    training_engine: str | None = None
    #: The Python that runs the script of a training job whose image cannot be run here.
    training_python: str = "python3"
    #: Simulated market: seconds until a launched instance is ready.
    simulated_boot_s: float = 40.0
    #: Simulated market: mean seconds between interruptions of a spot instance.
    simulated_mtbi_s: float = 7200.0
    #: Simulated market: seconds of notice before an instance is taken away.
    simulated_notice_s: float = 120.0
    #: Simulated market: how much faster than the clock it runs; 10 makes 120 s of notice 12 s.
    simulated_speed: float = 1.0
    #: What an hour of one of your GPUs costs, in US dollars; used where an instance has no price of its own.
    usd_gpu_hour: float = 0.0
    #: What an hour of one vCPU costs, for jobs without GPUs.
    usd_vcpu_hour: float = 0.0
    #: What reclaimable capacity of your own costs, as a share of the price above.
    spot_factor: float = 0.3

    @property
    def store_url(self) -> str:
        """The store to open."""
        return self.store or f"sqlite:///{(self.data / 'store' / 'windfall.db').absolute()}"

    @property
    def shares_store(self) -> bool:
        """Whether several daemons may use the store, and with it the data directory."""
        return self.store_url.startswith("postgresql://")

    @property
    def log_limit_bytes(self) -> int:
        """What the log of one attempt may have at most; 0 means no limit."""
        return 0 if self.job_log_limit == NO_LIMIT else log_limit_bytes(self.job_log_limit) or 0

    @property
    def objects_url(self) -> str:
        """Where checkpoints go."""
        if self.objects is not None:
            return self.objects.rstrip("/")
        return f"s3://{S3_BUCKET}" if self.s3 else (self.data / "objects").absolute().as_uri()


def read_settings(options: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> Settings:
    """Merge the settings; `options` are the command line's, None meaning not given."""
    environ = os.environ if environment is None else environment
    names = {field.name for field in fields(Settings)}
    given = {name: value for name, value in options.items() if value is not None}
    data = Path(given.pop("data", None) or default_data()).absolute()
    from_file = _read_file(data / CONFIG_NAME, names)
    from_environment = {
        name: environ[key]
        for name in names - {"data"}
        if (key := ENVIRONMENT_PREFIX + name.upper()) in environ
    }
    _check_spelling(environ, names)
    merged: dict[str, Any] = {**from_file, **from_environment, **given}
    settings = replace(Settings(data), **{name: _checked(name, value) for name, value in merged.items()})
    if settings.s3_listen is not None and not settings.s3:
        raise BadSetting("s3_listen is for the S3 server of the daemon: add --s3, or leave --s3-listen out")
    if settings.hosts_only:
        settings = _without_own_host(settings, merged)
    if "ray" in (settings.engine, settings.training_engine) and settings.ray is None:
        raise BadSetting("the engine ray needs a cluster: add --ray COMMAND, such as --ray 'ssh ubuntu@head'")
    return settings


def _without_own_host(settings: Settings, given: Mapping[str, Any]) -> Settings:
    """The settings of a daemon whose own host runs nothing: hosts are what environments run on, unless Ray is named."""
    for name in ("engine", "training_engine"):
        if given.get(name) in ("local", "simulated"):
            raise BadSetting(
                f"{name} is {given[name]}, which runs jobs on the daemon's host; hosts_only allows hosts and ray"
            )
    return settings if settings.engine == "ray" else replace(settings, engine="hosts")


def _check_spelling(environ: Mapping[str, str], names: set[str]) -> None:
    """Refuse a misspelt setting; Windfall also has variables that are not settings."""
    settings = [ENVIRONMENT_PREFIX + name.upper() for name in names]
    for name in sorted(environ):
        if not name.startswith(ENVIRONMENT_PREFIX) or name in settings:
            continue
        from difflib import get_close_matches  # rarely needed

        if close := get_close_matches(name, settings, n=1, cutoff=0.88):
            raise BadSetting(
                f"the variable {name} is not a setting; did you mean {close[0]}? Rename or unset it"
            )


def _read_file(path: Path, names: set[str]) -> dict[str, Any]:
    try:
        if not path.exists():
            return {}
        content = tomllib.loads(path.read_text())
    except OSError as error:
        if not os.access(path.parent, os.X_OK):
            raise BadSetting(
                f"the data directory {path.parent} cannot be entered: {error.strerror}; choose another with --data,"
                " or ask its owner for access"
            ) from None
        raise BadSetting(f"{path} cannot be read: {error.strerror}; make it a readable file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadSetting(f"{path} is not valid TOML: {error}") from None
    unknown = sorted(set(content) - names | ({"data"} & set(content)))
    if unknown:
        raise BadSetting(
            f"{path} has unknown settings: {', '.join(unknown)}; the known ones are"
            f" {', '.join(sorted(names - {'data'}))}"
        )
    return content


def _checked(name: str, value: Any) -> Any:
    kind = KINDS.get(name, str)
    if kind is bool:
        return _switched(name, value)
    try:
        value = kind(value)
    except (TypeError, ValueError):
        raise BadSetting(f"{name} must be a number, not {value!r}") from None
    if name in RANGES:
        low, high = RANGES[name]
        if not low <= value <= high:
            raise BadSetting(f"{name} must be between {low:,} and {high:,}, not {value:,}")
    if name in PATTERNS:
        pattern, meaning = PATTERNS[name]
        if not re.fullmatch(pattern, value):
            raise BadSetting(f"{name} must be {meaning}, not {value!r}")
    if name == "gpus" and value.startswith(RECORDED):
        _check_recorded(value.removeprefix(RECORDED))
    if name == "sample_every_s" and 0 < value < _LEAST_SAMPLE_S:
        raise BadSetting(f"sample_every_s must be 0 (no samples) or at least {_LEAST_SAMPLE_S}, not {value}")
    if name == "job_user":
        _check_job_user(value)
    if name == "job_users":
        uids_for_tenants(value)
    return value


def _check_recorded(path: str) -> None:
    """Checked here, because an agent that cannot read its GPUs would fail to start without a visible reason."""
    from windfall.agent.devices.readings import read_set  # rarely needed

    try:
        read_set(path)
    except AgentError as error:
        raise BadSetting(f"gpus: {error}") from None


def _check_job_user(name: str) -> None:
    """Checked here, because an agent without its user fails to start, and its warden would retry forever."""
    if os.geteuid() != 0:
        return  # Jobs run as the daemon's user.
    try:
        pwd.getpwnam(name)
    except KeyError:
        raise BadSetting(f"job_user must be a user of this host; there is no user {name!r}") from None


def _switched(name: str, value: Any) -> bool:
    word = str(value).lower()
    if word not in {"true", "false", "1", "0", "yes", "no"}:
        raise BadSetting(f"{name} must be true or false, not {value!r}")
    return word in {"true", "1", "yes"}
