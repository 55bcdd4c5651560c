"""How the processes of a distributed training are launched: `distribution=` of the SageMaker SDK.

The SDK says it in hyperparameters, and the toolkit in an image reads them. Where a script runs without its image, this
decides what launches it, or why nothing can. Pure. Must not know where hosts are.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from windfall.aws_api.sagemaker.cluster import TrainingHost, host_name
from windfall.aws_api.sagemaker.script_mode import Script, arguments
from windfall.jobs.nodes import OWN_NUMBER
from windfall.jobs.resources import Resources

TORCH_DISTRIBUTED, PYTORCH_DDP = "sagemaker_torch_distributed_enabled", "sagemaker_pytorch_ddp_enabled"
MPI, MPI_PROCESSES = "sagemaker_mpi_enabled", "sagemaker_mpi_num_of_processes_per_host"
MPI_OPTIONS = "sagemaker_mpi_custom_mpi_options"
MIRRORED = "sagemaker_multi_worker_mirrored_strategy_enabled"
#: What needs a program or library that only AWS's images have, by what the SDK calls it.
_ONLY_IN_IMAGES = {
    "sagemaker_distributed_dataparallel_enabled": "smdistributed dataparallel",
    "sagemaker_parameter_server_enabled": "parameter_server",
    "sagemaker_pytorch_xla_multi_worker_enabled": "pytorchxla",
}
#: Of smdistributed modelparallel; the SDK sends it beside the script's own hyperparameters.
MODEL_PARALLEL = "mp_parameters"
_MIRRORED_PORT = 8890
#: Below those that the kernel gives out by itself. Jobs on one host share its ports, so each has its own.
_PORTS = range(16_384, 32_768)


@dataclass(frozen=True, slots=True)
class Launcher:
    """What stands before the script on its command line, and the variables that go with it."""

    #: None where the script is run by itself.
    words: tuple[str, ...] | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    #: For the job's messages; empty where nothing is to be said.
    note: str = ""
    #: Why the training cannot be launched without its image; empty where it can.
    refusal: str = ""


def launcher_of(
    script: Script, python: str, host: TrainingHost, resources: Resources, job_name: str
) -> Launcher:
    """What launches a script on one host, by what the SDK asked for."""
    wanted = [name for flag, name in _ONLY_IN_IMAGES.items() if _is_on(script, flag)]
    if MODEL_PARALLEL in script.hyperparameters:
        wanted.append("smdistributed modelparallel")
    if wanted:
        return _refused(f"distribution {wanted[0]} needs the libraries of its image")
    if _is_on(script, TORCH_DISTRIBUTED) or _is_on(script, PYTORCH_DDP):
        return _torchrun(script, python, host, resources, job_name)
    if _is_on(script, MPI):
        return _mpi(script, python, host, resources)
    if _is_on(script, MIRRORED):
        return Launcher(variables={"TF_CONFIG": _tf_config(host)})
    return Launcher()


def _torchrun(
    script: Script, python: str, host: TrainingHost, resources: Resources, job_name: str
) -> Launcher:
    """torchrun on every host: they meet at the first one, which is called by its name."""
    if not script.program.endswith(".py"):
        return _refused(f"torch_distributed launches Python scripts, and {script.program} is none")
    processes, hosts = max(1, int(resources.gpus)), host.cluster.count
    words = [python, "-m", "torch.distributed.run", f"--nproc-per-node={processes}"]
    note = f"launched by torch.distributed.run, {processes} on each of {hosts}"
    if hosts == 1:
        # It finds a free port by itself.
        return Launcher((*words, "--standalone", script.program), note=note)
    first, port = host_name(0), str(_port(job_name))
    variables = {
        # Each of them is an option of torchrun too; which host this is differs, and options cannot.
        "PET_NNODES": str(hosts),
        "PET_NODE_RANK": _number(host),
        "PET_MASTER_ADDR": first,
        "PET_MASTER_PORT": port,
        "MASTER_ADDR": first,
        "MASTER_PORT": port,
    }
    return Launcher((*words, script.program), variables, note)


def _mpi(script: Script, python: str, host: TrainingHost, resources: Resources) -> Launcher:
    if host.cluster.count > 1:
        return _refused(
            f"distribution mpi over {host.cluster.count} instances needs the mpirun and the SSH servers of its image"
            " (one instance works, and so does torch_distributed)"
        )
    requested = script.framework.get(MPI_PROCESSES)
    processes = requested if isinstance(requested, int) and requested > 0 else max(1, int(resources.gpus))
    options = shlex.split(str(script.framework.get(MPI_OPTIONS) or ""))
    words = ("mpirun", "-np", str(processes), "--oversubscribe", *options)
    run = (python, script.program) if script.program.endswith(".py") else (f"./{script.program}",)
    variables = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return Launcher((*words, *run), variables, f"launched by mpirun as {processes} processes")


def command_line(launcher: Launcher, script: Script) -> tuple[str, ...] | None:
    """The launcher with the script and its arguments; None where the script is run by itself."""
    return None if launcher.words is None else (*launcher.words, *arguments(script.hyperparameters))


def _tf_config(host: TrainingHost) -> str:
    """What TensorFlow's MultiWorkerMirroredStrategy reads; the number is put in for each host."""
    workers = [f"{host_name(number)}:{_MIRRORED_PORT}" for number in range(host.cluster.count)]
    config = json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": "@"}})
    return config.replace('"@"', _number(host))


def _number(host: TrainingHost) -> str:
    return "0" if host.is_master else OWN_NUMBER


def _port(job_name: str) -> int:
    digest = hashlib.sha256(job_name.encode()).digest()
    return _PORTS[int.from_bytes(digest[:4], "big") % len(_PORTS)]


def _is_on(script: Script, flag: str) -> bool:
    value: Any = script.framework.get(flag)
    return value is True or (isinstance(value, str) and value.lower() == "true")


def _refused(why: str) -> Launcher:
    return Launcher(
        refusal=f"{why}, and jobs run as processes here; run it in a container of its image (Docker or Podman),"
        " or leave distribution out"
    )
