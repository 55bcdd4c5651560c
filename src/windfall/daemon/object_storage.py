"""Where objects are kept and with which keys: writes that down for agents, and runs the S3 server if there is one.

Decides whether there is an S3 at all: without one, buckets that training jobs name are directories under the data
directory. Decides too which of the daemon's environment variables may be used for object storage: never its own keys or
addresses. A daemon may be started from a shell with `eval "$(windfall env)"`, and a key of the API is not a key of
storage: passed to agents it would open the API to everyone who can read theirs, and would be sent to AWS. Must not know
what is stored.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import threading
from collections.abc import Callable, Collection, Mapping
from os import devnull
from pathlib import Path
from urllib.parse import unquote

from windfall.agent.job_credentials import ROLE_VARIABLE, STS_VARIABLE
from windfall.daemon.errors import DaemonError
from windfall.daemon.machine_sessions import DURATION_S, OWN_DURATION_S, MachineSessions, without_keys
from windfall.daemon.s3_identities import SESSION_ROLE, Tenants
from windfall.daemon.s3_server import S3Server
from windfall.daemon.settings import Settings
from windfall.jobs.storage import StorageLayout, StoragePlace
from windfall.jobs.submitters import DEFAULT_TENANT
from windfall.objects.credentials import KEY_VARIABLES, is_api_key, is_loopback, stored_profile
from windfall.objects.opening import ANCHOR_VARIABLE

log = logging.getLogger(__name__)

#: Variables about S3 that are passed to agents, including agents that were started long ago.
VARIABLES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_PROFILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_CONFIG_FILE",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL",
    "AWS_ALLOW_HTTP",
)
#: How often the S3 server, and what tenants own in it, is checked.
WATCH_EVERY_S = 1.0
#: The names of tenants, and the places that are registered.
Owned = tuple[Collection[str], tuple[StoragePlace, ...]]
#: Any of these means that there is an S3 elsewhere.
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_HAS_S3 = ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", *_ENDPOINTS)


class ObjectStorage:
    """The object storage of one daemon."""

    def __init__(
        self,
        settings: Settings,
        environment: Mapping[str, str],
        key_ids: Collection[str] = (),
        addresses: Collection[str] = (),
    ) -> None:
        """`key_ids` and `addresses` are Windfall's, and are never used for storage."""
        self._settings = settings
        server = S3Server(settings.data / "s3")
        own_s3 = [url for url in (server.url, server.url_for_machines) if url is not None]
        self._environment, left_out = without_own(environment, key_ids, [*addresses, *own_s3])
        if left_out:
            log.warning("not used for object storage: %s", "; ".join(left_out))
        self._server: S3Server | None = None
        self.url: str | None = None
        #: What agents of other machines open storage with; None where they reach none.
        self._for_machines: dict[str, str] | None = None
        #: What other machines open storage with in place of keys; None where it has no temporary credentials.
        self.sessions: MachineSessions | None = None
        #: Held while the server is started or ended; once closed it is not started again.
        self._lock = threading.Lock()
        self._closed = False
        self._trouble = ""

    @property
    def environment(self) -> Mapping[str, str]:
        """The daemon's environment without what is never used for storage."""
        return self._environment

    @property
    def layout(self) -> StorageLayout:
        """Where objects are, and which of them belong to which tenant."""
        data = self._settings.data.absolute()
        s3_is_there = self._settings.s3 or self._settings.objects_url.startswith("s3://")
        s3_is_there = s3_is_there or any(self._environment.get(name) for name in _HAS_S3)
        return StorageLayout(
            self._settings.objects_url,
            None if s3_is_there else (data / "objects").as_uri(),
            serves_s3=self._settings.s3,
            gives_sessions=self._settings.s3 or self._settings.job_role is not None,
            private=tuple({data.as_uri(), data.resolve().as_uri()}),
        )

    def open(self, objects_file: Path, keys_file: Path) -> None:
        """Start the S3 server if the settings ask for one, and write down how agents reach storage."""
        anchored = self._anchored(_root_before(objects_file))
        variables = {name: self._environment[name] for name in VARIABLES if name in self._environment}
        variables |= anchored
        if self._settings.s3:
            self._server = S3Server(
                self._settings.data / "s3",
                self._settings.s3_port,
                keys_file,
                self._settings.s3_listen or "",
            )
            if not self._server.tenants:
                self._server.set_tenants({DEFAULT_TENANT: self.layout.grants(DEFAULT_TENANT, ())})
            self.url = self._server.start()
            secrets = self._server.secrets
            variables = {
                **dict.fromkeys(variables, ""),
                **anchored,
                "AWS_ACCESS_KEY_ID": secrets.agents_key_id,
                "AWS_SECRET_ACCESS_KEY": secrets.agents_secret,
                "AWS_ENDPOINT_URL_S3": self.url,
                "AWS_REGION": self._settings.region,
                ROLE_VARIABLE: SESSION_ROLE,
                STS_VARIABLE: self.url,
            }
        elif self._settings.job_role is not None:
            variables |= {ROLE_VARIABLE: self._settings.job_role, STS_VARIABLE: self._sts_url}
        _write_secret(objects_file, json.dumps(variables))
        away = None if self._server is None else self._server.url_for_machines
        self._for_machines = for_machines(variables, self._environment, away)
        if self._for_machines is not None and variables.get(ROLE_VARIABLE):
            opening = {**self._environment, **variables}
            duration_s = OWN_DURATION_S if self._server is not None else DURATION_S
            self.sessions = MachineSessions(lambda: opening, duration_s)
            self._for_machines = without_keys(self._for_machines)

    @property
    def for_machines(self) -> Mapping[str, str] | None:
        """The variables that open storage on other machines than this one; None where they reach none."""
        return self._for_machines

    def make_bucket(self, name: str) -> None:
        """Make a bucket of the S3 server, if it is missing."""
        if self._server is not None:
            self._server.make_bucket(name)

    @property
    def _sts_url(self) -> str:
        """The STS of an S3 elsewhere: at the same address, unless the environment says otherwise."""
        region = self._environment.get("AWS_REGION") or self._settings.region
        endpoints = (self._environment.get(name) for name in ("AWS_ENDPOINT_URL_STS", *_ENDPOINTS))
        return next(filter(None, endpoints), f"https://sts.{region}.amazonaws.com")

    def _anchored(self, root_before: str | None) -> dict[str, str]:
        """Make the directory that objects are kept in, if it is on this host and was never made.

        If it existed before and is missing now, it is not made again: its disk is not mounted.
        """
        url = self._settings.objects_url
        if not url.startswith("file://"):
            return {}
        root = Path(unquote(url.removeprefix("file://")))
        if root_before == str(root):
            if not root.is_dir():
                log.warning(
                    "%s is missing; jobs that need their checkpoints wait until it is mounted again", root
                )
            return {ANCHOR_VARIABLE: root_before}
        try:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise DaemonError(
                f"cannot keep objects in {root}: {error.strerror}; choose another place with --objects"
            ) from None
        return {ANCHOR_VARIABLE: str(root)}

    async def watch(self, owned: Callable[[], Owned | None], every_s: float = WATCH_EVERY_S) -> None:
        """Start the S3 server again whenever it has ended, until cancelled: jobs wait for it meanwhile.

        `owned` returns the tenants and the registered places; None where this daemon does not know them.
        """
        while self._server is not None:
            await asyncio.sleep(every_s)
            owned_now = owned()
            tenants = (
                None
                if owned_now is None
                else {name: self.layout.grants(name, owned_now[1]) for name in sorted(owned_now[0])}
            )
            await asyncio.to_thread(self.restart_if_ended, tenants)

    def restart_if_ended(self, tenants: Tenants | None = None) -> None:
        """Start the S3 server again if it has ended, at its old address, and update what tenants own in it."""
        server = self._server
        with self._lock:
            # A server that was never started, or whose directory was removed, is not restarted.
            if self._closed or server is None or server.url is None:
                return
            before = {name: tuple(grants) for name, grants in server.tenants.items()}
            news = tenants is not None and tenants != before
            if server.pid is not None and not news:
                return
            try:
                if tenants is not None and news:
                    server.set_tenants(tenants)
                    server.start()
                    server.make_buckets(tenants)
                else:
                    log.warning("the S3 server had ended; started it again at %s", server.start())
                self._trouble = ""
            except (DaemonError, OSError, subprocess.SubprocessError) as error:
                if str(error) != self._trouble:
                    self._trouble = str(error)
                    log.warning("the S3 server has ended and cannot be started again: %s", error)

    def close(self) -> None:
        """End the S3 server: nothing that could need it runs any more."""
        with self._lock:
            self._closed = True
            if self._server is not None:
                self._server.stop()


def _root_before(objects_file: Path) -> str | None:
    """Where objects were kept at the last start."""
    try:
        root = json.loads(objects_file.read_text()).get(ANCHOR_VARIABLE)
    except (OSError, ValueError, AttributeError):
        return None
    return root if isinstance(root, str) else None


def _write_secret(path: Path, text: str) -> None:
    # With the pid: several daemons may share the directory and start at the same moment.
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
    temporary.rename(path)


def for_machines(
    variables: Mapping[str, str], environment: Mapping[str, str], own_s3: str | None
) -> dict[str, str] | None:
    """What opens storage on a machine that has none of this host's files; None where it could reach nothing.

    Keys in files of this host become variables. `own_s3` is the address of the daemon's S3 server for other machines.
    """
    sent = {name: value for name, value in variables.items() if value and name not in _OF_THIS_HOST}
    endpoints = [sent.get(name, "") for name in _ENDPOINT_VARIABLES]
    if any(is_loopback(url) for url in endpoints if url):
        if own_s3 is None:
            return None
        sent |= {"AWS_ENDPOINT_URL_S3": own_s3, "AWS_ALLOW_HTTP": "true"}
        if STS_VARIABLE in sent:
            sent[STS_VARIABLE] = own_s3
    if not sent.get(_KEY_ID):
        stored = stored_profile(environment.get("AWS_PROFILE") or "default", environment)
        sent |= {name: stored[name.lower()] for name in KEY_VARIABLES if stored.get(name.lower())}
    return sent


#: Variables that name files or directories of the daemon's host.
_OF_THIS_HOST = ("AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", ANCHOR_VARIABLE)
_KEY_ID = KEY_VARIABLES[0]
_ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_STS")


def without_own(
    environment: Mapping[str, str], key_ids: Collection[str], addresses: Collection[str]
) -> tuple[dict[str, str], list[str]]:
    """The environment without Windfall's own keys and addresses, and a text about each thing left out.

    What is left out is empty rather than missing, so that an agent that inherited it does not use it either.
    """
    left, left_out = dict(environment), []

    def is_own(key_id: str) -> bool:
        return key_id in key_ids or is_api_key(key_id)

    if is_own(left.get(_KEY_ID, "")):
        left_out.append(f"{_KEY_ID} is {left[_KEY_ID]}, a key of Windfall's API")
        left.update(dict.fromkeys(KEY_VARIABLES, ""))
    for name in _ENDPOINT_VARIABLES:
        if left.get(name, "").rstrip("/") in addresses:
            left_out.append(f"{name} is {left[name]}, which is Windfall itself")
            left[name] = ""
    profile = left.get("AWS_PROFILE") or "default"
    stored = stored_profile(profile, left)
    if is_own(stored.get("aws_access_key_id", "")):
        left_out.append(f"the profile {profile} has {stored['aws_access_key_id']}, a key of Windfall's API")
        left |= {"AWS_PROFILE": "", "AWS_SHARED_CREDENTIALS_FILE": devnull, "AWS_CONFIG_FILE": devnull}
    return left, left_out
