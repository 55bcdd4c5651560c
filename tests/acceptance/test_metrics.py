"""What is measured of a real job reaches boto3's CloudWatch client, the aws command line and a Prometheus scraper."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta

import pytest

from tests.acceptance.daemon import a_definition, a_queue
from tests.unit.views.test_metrics import parsed
from tests.waiting import wait_until

DEVICES = {
    "gpus": [
        {
            "id": "GPU-recorded-0",
            "name": "NVIDIA H200",
            "memory_mib": 143771,
            "meter": {"busy": 0.5, "memory_bytes": 1 << 30, "power_w": 300},
        }
    ]
}


@pytest.fixture(scope="module")
def devices(tmp_path_factory):
    path = tmp_path_factory.mktemp("devices") / "gpus.json"
    path.write_text(json.dumps(DEVICES))
    return f"recorded:{path}"


def scrape(windfall, user=None, secret=""):
    headers = {}
    if user is not None:
        headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:{secret}".encode()).decode()
    with urllib.request.urlopen(urllib.request.Request(f"{windfall.url}/metrics", headers=headers)) as answer:
        return answer.headers["content-type"], parsed(answer.read())


def test_a_running_job_is_seen_by_cloudwatch_and_by_prometheus(fresh, devices):
    windfall = fresh("--gpus", devices, "--sample-every-s", "0.5")
    batch = a_queue(windfall)
    a_definition(batch, "spin", "sh", "-c", "while :; do :; done", gpus=1)
    job_id = batch.submit_job(jobName="spin", jobQueue="q", jobDefinition="spin")["jobId"]
    cloudwatch = windfall.client("cloudwatch")
    now = datetime.now(UTC)

    def measured():
        answer = cloudwatch.get_metric_data(
            MetricDataQueries=[
                _query("cpu", "Windfall", "CPUCores", {"JobId": job_id}),
                _query("gpu", "CWAgent", "nvidia_smi_utilization_gpu", {"JobId": job_id, "index": "0"}),
            ],
            StartTime=now - timedelta(minutes=5),
            EndTime=now + timedelta(minutes=5),
        )
        values = {one["Id"]: one["Values"] for one in answer["MetricDataResults"]}
        return values if values["cpu"] and values["gpu"] else None

    wait_until(lambda: measured() is not None, "samples in CloudWatch")
    values = measured()
    assert 0.1 < values["cpu"][0] < 2
    assert values["gpu"][0] == 50.0

    listed = windfall.aws(
        f"cloudwatch list-metrics --namespace CWAgent --dimensions Name=JobId,Value={job_id}"
    )
    assert "nvidia_smi_power_draw" in {one["MetricName"] for one in listed["Metrics"]}

    environment = windfall.environment
    kind, samples = scrape(windfall, environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"])
    assert kind.startswith("text/plain; version=0.0.4")
    by_name = {(name, labels.get("job_id")): value for name, labels, value in samples}
    assert by_name["windfall_attempts", None] == 1
    assert by_name["windfall_gpu_held", job_id] == 1
    assert by_name["windfall_job_gpu_busy_ratio", job_id] == 0.5
    assert by_name["windfall_job_cpu_cores", job_id] > 0.1
    assert ("windfall_jobs", {"queue": "q", "state": "RUNNING"}, 1.0) in samples


@pytest.mark.parametrize(("user", "secret"), [(None, ""), ("WNDFNOBODY", "x"), ("", ""), ("é", "x")])
def test_who_shows_no_key_sees_no_metrics(windfall, user, secret):
    with pytest.raises(urllib.error.HTTPError) as refused:
        scrape(windfall, user, secret)
    assert refused.value.code == 401
    assert "Basic" in refused.value.headers["www-authenticate"]
    assert "windfall keys create" in refused.value.read().decode()


def _query(query_id, namespace, name, dimensions):
    return {
        "Id": query_id,
        "MetricStat": {
            "Metric": {
                "Namespace": namespace,
                "MetricName": name,
                "Dimensions": [{"Name": key, "Value": value} for key, value in dimensions.items()],
            },
            "Period": 60,
            "Stat": "Average",
        },
    }
