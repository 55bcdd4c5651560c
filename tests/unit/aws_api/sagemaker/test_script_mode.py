"""Script mode: the command line and the SM_ variables that the training toolkit would give a script."""

from __future__ import annotations

import json

from windfall.aws_api.sagemaker.cluster import TrainingHost, cluster_of
from windfall.aws_api.sagemaker.script_mode import arguments, command_line, decoded, script_of, variables
from windfall.jobs.resources import Resources


def alone(instance_type: str) -> TrainingHost:
    """The only host of a cluster of one."""
    cluster = cluster_of({"InstanceType": instance_type, "InstanceCount": 1})
    return TrainingHost(cluster, cluster.groups[0])


#: The toolkit's own list; SM_TOPOLOGY is only there on machines that have one.
ALWAYS = {
    "SM_HOSTS",
    "SM_NETWORK_INTERFACE_NAME",
    "SM_HPS",
    "SM_USER_ENTRY_POINT",
    "SM_FRAMEWORK_PARAMS",
    "SM_RESOURCE_CONFIG",
    "SM_INPUT_DATA_CONFIG",
    "SM_OUTPUT_DATA_DIR",
    "SM_CHANNELS",
    "SM_CURRENT_HOST",
    "SM_CURRENT_INSTANCE_TYPE",
    "SM_CURRENT_INSTANCE_GROUP",
    "SM_CURRENT_INSTANCE_GROUP_HOSTS",
    "SM_INSTANCE_GROUPS",
    "SM_INSTANCE_GROUPS_DICT",
    "SM_DISTRIBUTION_INSTANCE_GROUPS",
    "SM_IS_HETERO",
    "SM_MODULE_NAME",
    "SM_LOG_LEVEL",
    "SM_FRAMEWORK_MODULE",
    "SM_INPUT_DIR",
    "SM_INPUT_CONFIG_DIR",
    "SM_OUTPUT_DIR",
    "SM_NUM_CPUS",
    "SM_NUM_GPUS",
    "SM_NUM_NEURONS",
    "SM_MODEL_DIR",
    "SM_MODULE_DIR",
    "SM_TRAINING_ENV",
    "SM_USER_ARGS",
    "SM_OUTPUT_INTERMEDIATE_DIR",
}

HYPERPARAMETERS = {
    "sagemaker_program": '"train.py"',
    "sagemaker_submit_directory": '"s3://b/source.tar.gz"',
    "sagemaker_container_log_level": "10",
    "sagemaker_job_name": '"job"',
    "sagemaker_parameter_server_enabled": "true",
    "learning-rate": "0.1",
    "layers": "[2, 3]",
    "n": '"five"',
    "flag": "true",
    "plain": "not json",
    "map": '{"b": 1, "a": 2}',
}


def test_hyperparameters_become_arguments_sorted_by_name():
    script = script_of(HYPERPARAMETERS)
    assert command_line(script, "python3") == (
        "python3",
        "train.py",
        *("--flag", "True"),
        *("--layers", "[2, 3]"),
        *("--learning-rate", "0.1"),
        *("--map", "a=2,b=1"),
        *("-n", "five"),
        *("--plain", "not json"),
    )
    assert script.framework == {"sagemaker_parameter_server_enabled": True}
    assert (script.source, script.log_level) == ("s3://b/source.tar.gz", 10)


def test_a_program_that_is_not_python_is_run_by_a_shell_and_its_words_stay_words():
    script = script_of({"sagemaker_program": "bin/run.sh", "evil": "'; rm -rf /; '"})
    assert command_line(script, "python3") == (
        "/bin/sh",
        "-c",
        "./bin/run.sh --evil ''\"'\"'; rm -rf /; '\"'\"''",
    )


def test_no_program_is_no_script():
    assert script_of({"epochs": "3"}) is None
    assert arguments({}) == []


def test_every_variable_of_the_toolkit_is_there():
    channels = {"train": {"TrainingInputMode": "File"}, "test-set": {"TrainingInputMode": "Pipe"}}
    script = script_of(HYPERPARAMETERS)
    found = variables(script, "job", channels, alone("ml.p3.2xlarge"), Resources(8, 1024, 1))
    own = {name for name in found if not name.startswith(("SM_CHANNEL_", "SM_HP_"))}
    assert own == ALWAYS
    assert found["SM_CHANNEL_TRAIN"] == "/opt/ml/input/data/train"
    assert found["SM_CHANNEL_TEST-SET"] == "/opt/ml/input/data/test-set"
    assert json.loads(found["SM_CHANNELS"]) == ["test-set", "train"]
    # Hyphens stay, and text is not quoted.
    assert (found["SM_HP_LEARNING-RATE"], found["SM_HP_PLAIN"], found["SM_HP_N"]) == (
        "0.1",
        "not json",
        "five",
    )
    assert found["SM_HP_LAYERS"] == "[2,3]"
    assert (found["SM_NUM_GPUS"], found["SM_NUM_CPUS"]) == ("1", "8")
    assert (found["SM_MODULE_NAME"], found["SM_MODULE_DIR"]) == ("train", "s3://b/source.tar.gz")
    assert (found["SM_USER_ENTRY_POINT"], found["SM_LOG_LEVEL"]) == ("train.py", "10")
    assert (found["SM_FRAMEWORK_MODULE"], found["SM_IS_HETERO"]) == ("", "false")
    assert json.loads(found["SM_USER_ARGS"])[:2] == ["--flag", "True"]
    assert json.loads(found["SM_HPS"])["learning-rate"] == 0.1
    assert json.loads(found["SM_TRAINING_ENV"])["channel_input_dirs"]["train"] == "/opt/ml/input/data/train"
    assert json.loads(found["SM_RESOURCE_CONFIG"])["current_instance_type"] == "ml.p3.2xlarge"


def test_a_name_that_no_variable_can_have_is_an_argument_alone():
    script = script_of({"sagemaker_program": "a.py", "x=y": "1"})
    found = variables(script, "job", {}, alone("ml.m5.large"), Resources(0.5, 1))
    assert not any("=" in name for name in found)
    assert json.loads(found["SM_HPS"]) == {"x=y": 1}
    assert command_line(script, "python3")[2:] == ("--x=y", "1")
    assert found["SM_NUM_CPUS"] == "1"


def test_a_value_that_is_no_json_is_itself():
    assert decoded("[" * 100_000) == "[" * 100_000
    assert decoded("1e3") == 1000.0
    assert decoded("") == ""
