"""What an agent says when nobody can hear it."""

from __future__ import annotations

import subprocess
import sys


def test_a_log_on_a_full_disk_costs_the_words_and_nothing_else():
    program = "from windfall.agent.speech import say; say('one'); say('\\udcff'); raise SystemExit(64)"
    with open("/dev/full", "wb") as full:
        ended = subprocess.run([sys.executable, "-c", program], stderr=full, check=False)
    assert ended.returncode == 64
