"""The numbers by which the advisor judges, each with its reason. One table, so that a judgement can be disputed.

Holds no logic. Where a threshold is a pair, a sign begins to count at the first number and is full at the second.
"""

from __future__ import annotations

GB, MB = 1e9, 1e6

#: Samples before which nothing is said: five spans of two seconds see a loop several times.
FEWEST_SAMPLES = 4
#: This many samples after the first work show how it is then.
FEWEST_AFTER_START = 2
#: More samples than this say no more, and cost time when hundreds of jobs are asked about.
MOST_SAMPLES = 600
#: A GPU below this mean share of busy time is not used: one that was given a model and left alone stays below it.
UNUSED = 0.01
#: Below it the first work has not begun: the creation of a context shows as a few per cent for a moment.
BEGUN = 0.05
#: The same by the counters of the SMs, which see bursts that the driver misses: 0.03 to 0.06 was measured for a server
#: with two requests of 30 ms a second, 0.001 to 0.008 while contexts were made and memory was filled.
SMS_BEGUN = 0.02
#: Start-up is told as the cause when more than this share of the time went by before the first work; with less, another
#: cause explains more of the idle time.
START_UP = (0.35, 0.6)
#: From here the rest of the time is small enough that other remedies than more GPU hardly help.
WELL_BUSY = (0.6, 0.9)
#: How much of the SMs' time work was resident, per busy time. Large kernels fill all SMs for nearly all of it (0.8 and
#: more was measured for matrix products); tiny ones fill a few of a hundred (below 0.1).
FILLED = (0.15, 0.45)
#: The same from power, where there are no profiling counters: above idle power, as a share of the limit, per busy time.
FILLED_BY_POWER = (0.15, 0.4)
#: A GPU that waits takes about this share of its power limit; no sample of it is needed to subtract it.
IDLE_POWER = 0.15
#: A loop that only launches tiny kernels still shows one running for a tenth of the time and more (0.17 was measured on
#: an H200); a loop that does something else beside it shows less.
LAUNCHES = (0.03, 0.12)
#: DRAM bandwidth: streaming kernels reach 0.8 to 0.93 of the peak; products that are bound by arithmetic stay below
#: 0.5.
MEMORY_ACTIVE = (0.45, 0.7)
#: Tensor cores: dense products keep them busy for more than 0.5; elementwise work not at all.
TENSOR_ACTIVE = (0.1, 0.4)
#: Power under full arithmetic load is near its limit.
POWER = (0.4, 0.7)
#: A network or a disk counts as full well below its nominal speed: protocol overhead, and averages over two seconds.
LINK_FULL = (0.4, 0.75)
#: Where nobody knows how fast the link is: below the first rate it feeds no GPU worth the name, and hardly anything but
#: a data set makes the second.
RECEIVES = (20 * MB, 100 * MB)
READS = (30 * MB, 150 * MB)
#: Without the link's speed a high rate alone is not a proof that it is the limit.
UNPROVEN = 0.75
#: Where the link is known and far from full, the same rate is a weaker sign: of a source that gives no more.
SLOW_SOURCE = 0.55
#: Threads that wait in the kernel for a disk, on average: one reader that is always waiting makes 1.
DISK_WAITERS = (0.25, 0.7)
#: One thread that never rests makes 1.
THREAD_FULL = (0.6, 0.9)
#: The share of its vCPUs that an attempt uses.
CPU_FULL = (0.6, 0.9)
#: Below these the host does nothing while the GPU waits.
THREAD_RESTS = (0.5, 0.25)
#: Between host and GPU. Pageable memory gives 3 to 12 GB/s on any generation of PCIe, because the host copies it first;
#: the shares are of the link, for pinned memory.
PCIE_RATE = (1.2 * GB, 3 * GB)
PCIE_SHARE = (0.15, 0.4)
#: The part of its time that a job itself says it waited for data.
DATA_WAIT = (0.15, 0.4)
#: The part of its time that its loop was held up by saving, from which it is worth a word.
SAVING = 0.05
#: Held back by its own vCPU limit for more than this part of the time.
THROTTLED = 0.1
#: A second cause is told as a branch when it is at least this strong beside the first.
BRANCH = 0.5
#: A cause below this is not a cause.
WEAK = 0.3
