"""Adds up the ranks of all processes with MPI_Allreduce, through Open MPI's library alone: no compiler, no binding.

`mpi.sh python3 mpi_sum.py` runs it on every node of a multi-node job.
"""

from __future__ import annotations

import ctypes
import os
import socket


def handle(library: ctypes.CDLL, name: str) -> ctypes.c_void_p:
    """One of Open MPI's predefined handles: the address of a symbol."""
    return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(library, name)))


def main() -> None:
    """Say what all processes have added up."""
    mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
    mpi.MPI_Init(None, None)
    world = handle(mpi, "ompi_mpi_comm_world")
    rank, size, total = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    mpi.MPI_Comm_rank(world, ctypes.byref(rank))
    mpi.MPI_Comm_size(world, ctypes.byref(size))
    number, add = handle(mpi, "ompi_mpi_int"), handle(mpi, "ompi_mpi_op_sum")
    own = ctypes.c_int(rank.value + 1)
    mpi.MPI_Allreduce(ctypes.byref(own), ctypes.byref(total), 1, number, add, world)
    where = f"{socket.gethostname()}, pid {os.getpid()}"
    print(f"rank {rank.value} of {size.value} on {where}: sum {total.value}", flush=True)
    mpi.MPI_Finalize()


if __name__ == "__main__":
    main()
