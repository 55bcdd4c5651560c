"""What a simulated market is like where the tags of an environment do not say. Decides defaults, knows nothing else."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SimulatedSettings:
    """Defaults of all simulated markets. Seconds are simulated ones: `speed` divides them."""

    #: From the launch of an instance until it takes jobs.
    boot_s: float = 40.0
    #: Mean time between interruptions of a spot instance.
    mtbi_s: float = 7200.0
    #: From the notice of an interruption until the instance is gone.
    notice_s: float = 120.0
    #: How much faster than the clock the market runs; 10 makes 120 s of notice 12 s.
    speed: float = 1.0
    #: What all chance in the market follows from.
    seed: int = 0
    #: How probable it is that an interruption comes without notice.
    sudden: float = 0.0
    #: How probable it is that a rebalance recommendation comes before a notice, and how long before at most.
    rebalance: float = 0.5
    rebalance_lead_s: float = 300.0
