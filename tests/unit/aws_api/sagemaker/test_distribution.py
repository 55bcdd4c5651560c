"""`distribution=` of the SageMaker SDK: what launches a script that runs without its image, or why nothing does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from windfall.aws_api.sagemaker.cluster import TrainingHost, cluster_of, hosts_of
from windfall.aws_api.sagemaker.distribution import Launcher, command_line, launcher_of
from windfall.aws_api.sagemaker.script_mode import Script, script_of
from windfall.jobs.nodes import OWN_NUMBER
from windfall.jobs.resources import Resources

GPUS = Resources(8, 1024, 4)


def script(program: str = "train.py", **more: Any) -> Script:
    sent = {name: json.dumps(value) for name, value in more.items()}
    found = script_of({"sagemaker_program": program, "epochs": "3", **sent})
    assert found is not None
    return found


def hosts(count: int) -> list[TrainingHost]:
    return [
        host
        for host, _, _ in hosts_of(cluster_of({"InstanceType": "ml.g5.12xlarge", "InstanceCount": count}))
    ]


def launch(asked: Script, count: int = 1, resources: Resources = GPUS) -> list[Launcher]:
    return [launcher_of(asked, "python3", host, resources, "job") for host in hosts(count)]


def test_a_script_without_a_distribution_is_run_by_itself():
    (found,) = launch(script(sagemaker_instance_type="ml.g5.12xlarge"))
    assert (found, command_line(found, script())) == (Launcher(), None)


@pytest.mark.parametrize("flag", ["sagemaker_torch_distributed_enabled", "sagemaker_pytorch_ddp_enabled"])
def test_one_host_has_a_process_for_each_gpu(flag):
    asked = script(**{flag: True, "sagemaker_instance_type": "ml.g5.12xlarge"})
    (found,) = launch(asked)
    assert command_line(found, asked) == (
        *("python3", "-m", "torch.distributed.run", "--nproc-per-node=4", "--standalone", "train.py"),
        *("--epochs", "3"),
    )
    assert found.variables == {}
    (cpu,) = launch(asked, resources=Resources(8, 1024))
    assert "--nproc-per-node=1" in (command_line(cpu, asked) or ())


def test_several_hosts_meet_at_the_first_and_each_knows_its_rank():
    asked = script(sagemaker_torch_distributed_enabled=True)
    first, others = launch(asked, 3)
    assert command_line(first, asked) == command_line(others, asked)
    assert command_line(first, asked)[-3:] == ("train.py", "--epochs", "3")
    assert first.variables["PET_NODE_RANK"] == "0"
    assert others.variables["PET_NODE_RANK"] == OWN_NUMBER
    for each in (first, others):
        assert (each.variables["PET_NNODES"], each.variables["PET_MASTER_ADDR"]) == ("3", "algo-1")
        assert each.variables["PET_MASTER_PORT"] == each.variables["MASTER_PORT"]
        assert 16_384 <= int(each.variables["PET_MASTER_PORT"]) < 32_768
    other = launcher_of(asked, "python3", hosts(3)[0], GPUS, "another job")
    assert other.variables["PET_MASTER_PORT"] != first.variables["PET_MASTER_PORT"]


def test_mpi_on_one_host_is_launched_by_mpirun():
    asked = script(
        sagemaker_mpi_enabled=True,
        sagemaker_mpi_num_of_processes_per_host=2,
        sagemaker_mpi_custom_mpi_options="-x A=1 --tag-output",
    )
    (found,) = launch(asked)
    assert command_line(found, asked) == (
        *("mpirun", "-np", "2", "--oversubscribe", "-x", "A=1", "--tag-output", "python3", "train.py"),
        *("--epochs", "3"),
    )


def test_workers_of_tensorflow_know_one_another():
    first, others = launch(script(sagemaker_multi_worker_mirrored_strategy_enabled=True), 2)
    cluster = {"worker": ["algo-1:8890", "algo-2:8890"]}
    assert json.loads(first.variables["TF_CONFIG"]) == {
        "cluster": cluster,
        "task": {"type": "worker", "index": 0},
    }
    own = json.loads(others.variables["TF_CONFIG"].replace(OWN_NUMBER, "1"))
    assert own["task"] == {"type": "worker", "index": 1}


@pytest.mark.parametrize(
    ("asked", "count", "words"),
    [
        ({"sagemaker_distributed_dataparallel_enabled": True}, 1, "smdistributed dataparallel needs"),
        ({"mp_parameters": {"partitions": 2}}, 1, "smdistributed modelparallel needs"),
        ({"sagemaker_parameter_server_enabled": True}, 2, "parameter_server needs"),
        ({"sagemaker_pytorch_xla_multi_worker_enabled": True}, 1, "pytorchxla needs"),
        ({"sagemaker_mpi_enabled": True}, 2, "mpi over 2 instances needs"),
        ({"sagemaker_torch_distributed_enabled": True, "program": "run.sh"}, 1, "run.sh is none"),
    ],
)
def test_what_only_an_image_can_do_is_refused_with_what_to_do(asked, count, words):
    for found in launch(script(**asked), count):
        assert words in found.refusal
        assert "run it in a container of its image" in found.refusal


def test_what_is_switched_off_asks_for_nothing():
    (found,) = launch(script(sagemaker_mpi_enabled=False, sagemaker_parameter_server_enabled=False))
    assert found == Launcher()
