"""`python -m tests.ray_drill --rounds N [--seed S]`: says how each round ended, and fails if one ended wrongly."""

from __future__ import annotations

import os
import sys

from tests.hosts_drill.__main__ import main
from tests.ray_cluster import ray_python
from tests.ray_drill.drill import RayDrill

if __name__ == "__main__":
    there = os.access(ray_python(), os.X_OK)
    sys.exit(main(RayDrill, "" if there else "RAY_PYTHON names no Python with Ray (pip install ray==2.60.0)"))
