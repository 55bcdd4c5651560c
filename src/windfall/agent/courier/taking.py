"""What a process left, taken to the object store after it has gone.

Decides what is worth taking: checkpoints always, outputs only of a process that ended by itself. Must not know how long
it may take; it is cut off from outside.
"""

from __future__ import annotations

import stat

from windfall.agent.courier.archives import content_of, files_below, packed
from windfall.agent.courier.merging import MergedOutput
from windfall.agent.courier.messages import Errand, Finish
from windfall.agent.courier.stores import Stores
from windfall.agent.courier.tree import Tree
from windfall.jobs.staging import Output

_FAILURE_CHARACTERS = 1024


def wanted_outputs(order: Finish) -> list[Output]:
    """Return the outputs that are kept of a process that ended so."""
    if order.lose or order.interrupted:
        return []
    outputs = order.errand.places.staging.outputs
    return [output for output in outputs if output.when_failed or order.exit_code == 0]


def take_output(output: Output, errand: Errand, tree: Tree, stores: Stores, merge_directory: str) -> None:
    """Put one directory into the store, as one archive or file by file; an archive of several nodes as a whole."""
    with tree.directory(errand.places.inside(output.path)) as directory:
        if output.archived and output.merged_as is not None:
            with MergedOutput(merge_directory, output).joined(directory, errand.token) as whole:
                if whole is not None:
                    store, name = stores.open_object(output.uri, write=True)
                    store.put_pieces(name, packed(whole))
            return
        if output.archived:
            store, name = stores.open_object(output.uri, write=True)
            store.put_pieces(name, packed(directory))
            return
        store = stores.open(output.uri.rstrip("/"), write=True)
        for name, status, fd in files_below(directory):
            if stat.S_ISREG(status.st_mode):
                store.put_pieces(name, content_of(name, fd))


def read_failure(errand: Errand, tree: Tree) -> str | None:
    """Return what the job wrote about its failure, as much of it as is passed on."""
    path = errand.places.staging.failure_path
    if path is None:
        return None
    # A character has up to four bytes.
    content = tree.read(errand.places.inside(path), 4 * _FAILURE_CHARACTERS)
    if not content:
        return None
    return content.decode(errors="replace")[:_FAILURE_CHARACTERS] or None
