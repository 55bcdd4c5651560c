"""Real jobs for the page to show: each runs on the daemon under test."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.acceptance.daemon import RunningWindfall, a_definition, a_queue
from tests.waiting import wait_until

#: Saves its step on notice and every 20 steps, tells its loss, and goes on where it was.
TRAINING = r"""
import json, os, pathlib, signal, sys, time
saved = pathlib.Path(os.environ["WINDFALL_CHECKPOINT_DIR"]) / "step"
step, told = (int(saved.read_text()) if saved.exists() else 0), []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
print("\x1b[1;32mbegins\x1b[0m at", step, flush=True)
while True:
    step += 1
    print(json.dumps({"step": step, "loss": 4 / step}), flush=True)
    if told or step % 20 == 0:
        saved.with_suffix(".new").write_text(str(step))
        saved.with_suffix(".new").rename(saved)
    if told:
        sys.exit(143)
    time.sleep(0.1)
"""
#: Names and lines that would do harm as markup, to a terminal, or to what stands beside them.
IMAGE = "<img src=x onerror=window.harmed=1>"
OVERRIDE = "abc\u202edcba\u2066"
LINES = rf"""
printf '%s\n' "{IMAGE}" '<script>window.harmed=2</script>'
printf '\033]0;title\007\033[2Jcleared \033[31mred\033[0m '
printf '\033]8;;http://evil.invalid\033\\link\033]8;;\033\\ \007bell\n'
printf 'before {OVERRIDE} after\n'
printf 'drawn over\rlast drawing\n'
head -c 30000 /dev/zero | tr '\0' x; echo
"""


@dataclass(frozen=True, slots=True)
class Filled:
    """The ids of the jobs, by what became of them."""

    running: str
    waiting: str
    failed: str
    hostile: str
    array: str
    lines: str


def fill(windfall: RunningWindfall) -> Filled:
    """Submit everything and wait until it stands as the tests expect."""
    batch = a_queue(windfall, "page")

    def submitted(name: str, *command: str, gpus: int = 0, **more: object) -> str:
        definition = a_definition(batch, f"{name}-definition", *command, gpus=gpus)
        answer = batch.submit_job(
            jobName=name, jobQueue=str(more.pop("queue", "page")), jobDefinition=definition, **more
        )
        return str(answer["jobId"])

    run = windfall.windfall(
        "run", "-d", "--spot", "--checkpoint", "--gpus", "1", "--name", "train", "--attempts", "3",
        "--clean", "--", "python3", "-u", "-c", TRAINING,
    )  # fmt: skip
    running = run.stdout.split()[-1]
    failed = submitted(
        "oom", "python3", "-c", "raise MemoryError('CUDA out of memory. Tried to allocate 2 GiB')"
    )
    hostile = windfall.windfall(
        "run", "-d", "--clean", "--name", "hostile", "--tag", f"note={IMAGE}", "--", "bash", "-c", LINES
    ).stdout.split()[-1]
    lines = submitted("lines", "bash", "-c", "seq -f 'line %.0f' 1 30000; echo the end")
    array = submitted(
        "sweep", "bash", "-c", "[ $((AWS_BATCH_JOB_ARRAY_INDEX % 10)) != 3 ]", arrayProperties={"size": 50}
    )
    waiting = submitted("big", "sleep", "1", gpus=64)
    windfall.windfall("schedule", "create", "nightly", "--cron", "0 2 * * *", "--", "true")
    windfall.wait_for([failed, hostile, lines, array])
    windfall.wait_for([running], "RUNNING")
    _interrupt_after_a_checkpoint(windfall, running)
    return Filled(running, waiting, failed, hostile, array, lines)


def _interrupt_after_a_checkpoint(windfall: RunningWindfall, job_id: str) -> None:
    """The training has two attempts then, the second of which began with what the first had saved."""
    wait_until(
        lambda: '"step": ' in windfall.windfall("logs", job_id).stdout, "the first steps", interval_s=0.3
    )
    windfall.windfall("interrupt", job_id)
    wait_until(
        lambda: re.search(r"begins.{0,8}at [1-9]", windfall.windfall("logs", job_id, check=False).stdout),
        "an attempt that goes on",
        interval_s=0.3,
    )
