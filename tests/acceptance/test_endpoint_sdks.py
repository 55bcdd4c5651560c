"""The SageMaker Python SDKs, unmodified: deploy a model, ask it, delete it. Each may live in a Python of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.serving import Serving, scaler

OPTIONS = ("--vcpus", "16", "--memory-mib", "65536", "--gpus", "none", "--usher-port", "0")
#: The SDK's own wait looks every 30 seconds, so that a waiter stands in for it.
SDK_2 = """
from sagemaker import Session
from sagemaker.deserializers import JSONDeserializer
from sagemaker.model import Model
from sagemaker.predictor import Predictor
from sagemaker.serializers import JSONSerializer

session = Session(default_bucket="windfall")
model = Model(
    image_uri="123456789012.dkr.ecr.us-east-1.amazonaws.com/pytorch:2",
    model_data="s3://windfall/model.tar.gz",
    role="arn:aws:iam::123456789012:role/Serving",
    env={"SAGEMAKER_PROGRAM": "inference.py"},
    predictor_cls=Predictor,
    sagemaker_session=session,
    name="by-sdk",
)
predictor = model.deploy(
    initial_instance_count=1,
    instance_type="ml.m5.large",
    endpoint_name="by-sdk",
    serializer=JSONSerializer(),
    deserializer=JSONDeserializer(),
    wait=False,
)
waiter = session.sagemaker_client.get_waiter("endpoint_in_service")
waiter.wait(EndpointName="by-sdk", WaiterConfig={"Delay": 1})
print("ANSWER", predictor.predict([1, 2])["scaled"])
predictor.delete_endpoint()
model.delete_model()
"""
SDK_3 = """
import json
from sagemaker.core.resources import Endpoint, EndpointConfig, Model
from sagemaker.core.shapes import ContainerDefinition, ProductionVariant

model = Model.create(
    model_name="by-sdk",
    primary_container=ContainerDefinition(
        image="pytorch",
        model_data_url="s3://windfall/model.tar.gz",
        environment={"SAGEMAKER_PROGRAM": "inference.py"},
    ),
    execution_role_arn="arn:aws:iam::123456789012:role/Serving",
)
variant = ProductionVariant(
    variant_name="AllTraffic", model_name="by-sdk", initial_instance_count=1, instance_type="ml.m5.large"
)
config = EndpointConfig.create(endpoint_config_name="by-sdk", production_variants=[variant])
endpoint = Endpoint.create(endpoint_name="by-sdk", endpoint_config_name="by-sdk")
endpoint.wait_for_status("InService")
answer = endpoint.invoke(body=json.dumps([1, 2]), content_type="application/json")
print("ANSWER", json.loads(answer.body.read())["scaled"])
endpoint.delete()
config.delete()
model.delete()
"""


@pytest.mark.parametrize(
    ("variable", "program"), [("SAGEMAKER_SDK_PYTHON", SDK_2), ("SAGEMAKER_SDK3_PYTHON", SDK_3)]
)
def test_a_model_is_deployed_asked_and_deleted(fresh, tmp_path: Path, variable: str, program: str):
    python = os.environ.get(variable)
    if python is None:
        pytest.skip(f"the SageMaker SDK is not installed; name a Python that has it in {variable}")
    serving = Serving(fresh(*OPTIONS))
    serving.upload("model.tar.gz", scaler(2))
    (tmp_path / "program.py").write_text(program)
    done = subprocess.run(
        [python, str(tmp_path / "program.py")],
        capture_output=True,
        text=True,
        env={**os.environ, **serving.windfall.environment, "HOME": str(tmp_path)},
        cwd=tmp_path,
        timeout=240,
        check=False,
    )
    assert "ANSWER [2, 4]" in done.stdout, (
        done.stdout,
        done.stderr[-6000:],
        serving.windfall.log.read_text(),
    )
    assert done.returncode == 0, done.stderr[-6000:]
    assert serving.sagemaker.list_models()["Models"] == []
    assert serving.sagemaker.list_endpoint_configs()["EndpointConfigs"] == []
