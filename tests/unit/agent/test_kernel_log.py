"""Which of the kernel's lines are errors of which device, from records through a pipe that keeps them apart."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from windfall.agent.kernel_log import Clocks, KernelLog, open_kernel_log

#: 100 s after the machine's start, by one of its clocks and by the wall's (1,000 s).
NOW = Clocks(1_000_000_000, (100_000_000, 100_000_000))
A, B = "00000000:3B:00.0", "00000000:5E:00.0"
FELL_OFF = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


class Kernel:
    """Writes records as /dev/kmsg gives them; a read takes one."""

    def __init__(self) -> None:
        self.fd, self._into = os.pipe2(os.O_DIRECT | os.O_NONBLOCK | os.O_CLOEXEC)
        self.now = NOW
        self.log = KernelLog(self.fd, lambda: self.now)

    def says(self, text: str, at_s: float = 95.0) -> None:
        os.write(self._into, f"4,8484,{int(at_s * 1e6)},-;{text}\n SUBSYSTEM=pci\n".encode())

    def writes(self, record: bytes) -> None:
        os.write(self._into, record)

    def close(self) -> None:
        os.close(self.fd)
        os.close(self._into)


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    made = Kernel()
    yield made
    made.close()


def test_an_error_belongs_to_the_device_that_it_names(kernel):
    kernel.says("usb 1-1: new device")
    kernel.says(FELL_OFF)
    assert kernel.log.device_errors([A], 990_000) == [FELL_OFF]
    assert kernel.log.device_errors([B], 990_000) == []
    assert kernel.log.device_errors([B, A], 990_000) == [FELL_OFF]  # Read once, remembered.


def test_an_error_from_before_is_somebody_elses(kernel):
    kernel.says(FELL_OFF, at_s=89.0)
    assert kernel.log.device_errors([A], 990_000) == []
    assert kernel.log.device_errors([A], 989_000) == [FELL_OFF]


def test_either_of_the_kernels_clocks_may_be_what_records_are_dated_by(kernel):
    kernel.now = Clocks(NOW.wall_us, (100_000_000, 97_000_000))
    kernel.says(FELL_OFF, at_s=88.0)
    assert kernel.log.device_errors([A], 990_000) == [FELL_OFF]


def test_notes_on_memory_slices_and_records_of_other_shapes_are_left_out(kernel):
    kernel.says("NVRM: Xid (PCI:0000:3b:00): 63, pid='<unknown>', name=<unknown>, Row Remapper: New row")
    kernel.says("NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 13, pid=77, name=python3, Graphics Exception")
    kernel.says("NVRM: Xid (PCI:::): 79")
    kernel.writes(b"Xid\n")
    kernel.writes(b"4,1;NVRM: Xid (PCI:0000:3b:00): 79\n")
    kernel.writes(b"\xff\xfe Xid;\n")
    assert kernel.log.device_errors([A, "", "nowhere"], 0) == []


def test_no_more_is_read_at_once_than_the_loop_can_wait_for(kernel):
    for _ in range(3):
        kernel.says(FELL_OFF)
    assert KernelLog(kernel.fd, lambda: NOW, most_records=2).device_errors([A], 0) == [FELL_OFF] * 2


def test_the_real_log_is_read_without_waiting_where_that_is_allowed(tmp_path):
    assert open_kernel_log(str(tmp_path / "missing")) is None
    log = open_kernel_log()
    if log is None:
        pytest.skip("/dev/kmsg may not be read here")
    assert log.device_errors(["ffff:ff:1f.0"], 0) == []
