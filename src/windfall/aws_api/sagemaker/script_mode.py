"""Script mode: the user's script, run with this host's Python as SageMaker's training toolkit runs it in an
image.

Decides the command line and the SM_ variables of a job whose hyperparameters name a program. Pure. Must not
know where the code comes from, nor how the job is placed.
"""

from __future__ import annotations

import json
import posixpath
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windfall.aws_api.sagemaker.cluster import TrainingHost
from windfall.aws_api.sagemaker.rejections import invalid, shown
from windfall.jobs.resources import Resources
from windfall.jobs.staging import ML_ROOT

CODE = f"{ML_ROOT}/code"
PROGRAM, SUBMIT_DIRECTORY = "sagemaker_program", "sagemaker_submit_directory"
#: Hyperparameters that are the toolkit's own and never reach the script; other sagemaker_* go to SM_FRAMEWORK_PARAMS.
_TOOLKIT = frozenset(
    {
        PROGRAM,
        SUBMIT_DIRECTORY,
        "sagemaker_enable_cloudwatch_metrics",
        "sagemaker_region",
        "sagemaker_container_log_level",
        "sagemaker_job_name",
        "default_user_module_name",
        "_tuning_objective_metric",
        "sagemaker_s3_output",
    }
)
_LOG_LEVEL = 20


@dataclass(frozen=True, slots=True)
class Script:
    """What script mode is asked to run."""

    program: str
    #: Where the code is: a tar file in the object store, or a path inside the job. None when only a path in the image.
    source: str | None
    #: Those for the script, as values.
    hyperparameters: Mapping[str, Any]
    #: sagemaker_* of frameworks.
    framework: Mapping[str, Any]
    log_level: int


def script_of(hyperparameters: Mapping[str, str]) -> Script | None:
    """The script that hyperparameters ask for; None when they name no program."""
    if PROGRAM not in hyperparameters:
        return None
    values = {name: decoded(text) for name, text in hyperparameters.items()}
    program, source = values[PROGRAM], values.get(SUBMIT_DIRECTORY)
    if not isinstance(program, str) or not _is_inside(program):
        raise invalid(
            f"The hyperparameter {PROGRAM} must be a path inside the source directory, got {shown(str(program))}"
        )
    if source is not None and not isinstance(source, str):
        raise invalid(f"The hyperparameter {SUBMIT_DIRECTORY} must be a location, got {shown(str(source))}")
    own = {name: value for name, value in values.items() if name not in _TOOLKIT}
    level = values.get("sagemaker_container_log_level", _LOG_LEVEL)
    return Script(
        posixpath.normpath(program),
        source,
        {name: value for name, value in own.items() if not name.startswith("sagemaker_")},
        {name: value for name, value in own.items() if name.startswith("sagemaker_")},
        level if isinstance(level, int) else _LOG_LEVEL,
    )


def decoded(text: str) -> Any:
    """A hyperparameter's value: what its JSON means, or the text itself where it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def arguments(hyperparameters: Mapping[str, Any]) -> list[str]:
    """Hyperparameters as a command line: `--name value` sorted by name, `-n value` for one letter."""
    words: list[str] = []
    for name in sorted(hyperparameters):
        words += [f"-{name}" if len(name) == 1 else f"--{name}", _text(hyperparameters[name])]
    return words


def command_line(script: Script, python: str) -> tuple[str, ...]:
    """How the script is run in its own directory: Python for .py, a shell for everything else."""
    words = arguments(script.hyperparameters)
    if script.program.endswith(".py"):
        return (python, script.program, *words)
    return ("/bin/sh", "-c", shlex.join([f"./{script.program}", *words]))


def variables(
    script: Script,
    job_name: str,
    channels: Mapping[str, Mapping[str, Any]],
    host: TrainingHost,
    resources: Resources,
) -> dict[str, str]:
    """The SM_ variables that the training toolkit derives on one host, all of them."""
    cluster, group = host.config, host.group
    module = posixpath.splitext(script.program)[0] if script.program.endswith(".py") else script.program
    directories = {
        "input_dir": f"{ML_ROOT}/input",
        "input_config_dir": f"{ML_ROOT}/input/config",
        "output_dir": f"{ML_ROOT}/output",
        "output_data_dir": f"{ML_ROOT}/output/data",
        "output_intermediate_dir": f"{ML_ROOT}/output/intermediate",
        "model_dir": f"{ML_ROOT}/model",
    }
    channel_dirs = {name: f"{ML_ROOT}/input/data/{name}" for name in channels}
    shared = {
        "current_host": host.name,
        "current_instance_type": group.instance_type,
        "current_instance_group": group.name,
        "current_instance_group_hosts": group.hosts,
        "distribution_instance_groups": [],
        "framework_module": None,
        "hosts": host.cluster.hosts,
        "is_hetero": len(host.cluster.groups) > 1,
        "log_level": script.log_level,
        "module_dir": script.source or CODE,
        "module_name": module,
        "network_interface_name": cluster["network_interface_name"],
        "num_cpus": max(1, int(resources.vcpus)),
        "num_gpus": resources.gpus,
        "num_neurons": 0,
        "resource_config": cluster,
        "input_data_config": channels,
        **directories,
    }
    training_env = {
        **shared,
        "channel_input_dirs": channel_dirs,
        "hyperparameters": script.hyperparameters,
        "additional_framework_parameters": script.framework,
        "job_name": job_name,
        "is_master": host.is_master,
        "master_hostname": host.cluster.hosts[0],
        "user_entry_point": script.program,
    }
    own = {
        **shared,
        "channels": sorted(channels),
        "framework_params": script.framework,
        "hps": script.hyperparameters,
        "instance_groups": [group["instance_group_name"] for group in cluster["instance_groups"]],
        "instance_groups_dict": {group["instance_group_name"]: group for group in cluster["instance_groups"]},
        "training_env": training_env,
        "user_args": arguments(script.hyperparameters),
        "user_entry_point": script.program,
        **{f"channel_{name}": path for name, path in channel_dirs.items()},
        **{f"hp_{name}": value for name, value in script.hyperparameters.items()},
    }
    # A hyperparameter may be called anything; no variable can have an equals sign in its name.
    return {f"SM_{name.upper()}": _variable(value) for name, value in own.items() if "=" not in name}


def _is_inside(program: str) -> bool:
    path = posixpath.normpath(program)
    return bool(program) and not path.startswith(("/", "..", "-")) and path != "."


def _variable(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _text(value: Any) -> str:
    """A value on a command line, in the form that scripts have always had it from the toolkit."""
    if isinstance(value, dict):
        return ",".join(f"{name}={value[name]}" for name in sorted(value))
    return str(value)
