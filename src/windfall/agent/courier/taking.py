"""What a process left, taken to the object store after it has gone.

Decides what is worth taking: checkpoints always, outputs only of a process that ended by itself. Must not know how long
it may take; it is cut off from outside.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import stat
from collections.abc import Callable, Iterator

from windfall.agent.courier.archives import content_of, files_below, packed
from windfall.agent.courier.errors import CannotBring, Replaced
from windfall.agent.courier.means import Means
from windfall.agent.courier.meeting import open_parts, store_part
from windfall.agent.courier.merging import MergedOutput
from windfall.agent.courier.messages import Errand, Finish
from windfall.agent.courier.stores import Stores
from windfall.agent.courier.tree import Tree
from windfall.agent.sync.checkpoint_sync import CheckpointSync
from windfall.agent.sync.reports import SyncEvent
from windfall.agent.walking import LOOK
from windfall.jobs.kept_files import is_kept
from windfall.jobs.staging import Output
from windfall.objects.errors import BadUri, Full, NotFound, Refused, Unreachable

_FAILURE_CHARACTERS = 1024


def wanted_outputs(order: Finish) -> list[Output]:
    """Return the outputs that are kept of a process that ended so."""
    if order.lose or order.interrupted:
        return []
    outputs = order.errand.places.staging.outputs
    return [output for output in outputs if output.when_failed or order.exit_code == 0]


def wants_checkpoint(order: Finish) -> bool:
    """Whether the last checkpoint is kept until it is stored: nobody goes on from a job that ended by itself."""
    return not order.lose and not order.interrupted


def check_output(output: Output, stores: Stores) -> None:
    """See that an output can go where it is to go, as far as that is known before it exists; CannotBring otherwise.

    A store that does not answer does not count: it is waited for when there is something to store.
    """
    try:
        if output.archived:
            store, name = stores.open_object(output.uri, write=True)
        else:
            store, name = stores.open(output.uri.rstrip("/"), write=True), ""
        next(iter(store.list(name)), None)
        if output.merged_in_store:
            next(iter(open_parts(output, stores).list()), None)
    except NotFound as error:
        raise CannotBring(
            f"{output.path} could not be stored in {output.uri}: {error}; make it, or name another"
        ) from None
    except (BadUri, Refused) as error:
        raise CannotBring(f"{output.path} could not be stored in {output.uri}: {error}") from None
    except (Unreachable, Full):
        return


def take_output(output: Output, errand: Errand, tree: Tree, stores: Stores, means: Means) -> None:
    """Put one directory into the store, as one archive or file by file; an archive of several nodes as a whole."""
    if output.patterns:
        _take_matching(output, errand, stores, means)
        return
    with _opened(output, errand, tree) as directory:
        if output.archived and output.merged_as is not None:
            merged = MergedOutput(means.merge_directory, output)
            with merged.joined(directory, errand.token) as whole:
                if whole is not None and output.merged_in_store:
                    part = merged.part(errand.token)
                    store_part(output, stores, whole, part, means.merge_directory)
                elif whole is not None:
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
                store.put_pieces(_object_name(name), content_of(name, fd))


@contextlib.contextmanager
def _opened(output: Output, errand: Errand, tree: Tree) -> Iterator[int]:
    """Open an output's directory; Replaced where the job has removed it, or put something else in its place."""
    with contextlib.ExitStack() as stack:
        try:
            directory = stack.enter_context(tree.directory(errand.places.inside(output.path)))
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                raise
            raise Replaced(
                f"{output.path} is not the directory any more that the job was given"
                f" ({error.strerror}); links are not followed"
            ) from None
        yield directory


def _take_matching(output: Output, errand: Errand, stores: Stores, means: Means) -> None:
    """Put files of the private working directory into the store; a directory of the user's own keeps its files."""
    if errand.directory != errand.places.working_directory:
        return
    try:
        directory = os.open(means.near(errand.directory), LOOK)
    except (FileNotFoundError, NotADirectoryError):
        return  # The job has removed it, or put something else in its place.
    try:
        store = stores.open(output.uri.rstrip("/"), write=True)
        for name, status, fd in files_below(directory):
            if stat.S_ISREG(status.st_mode) and is_kept(name, output.patterns):
                store.put_pieces(_object_name(name), content_of(name, fd))
    finally:
        os.close(directory)


def _object_name(name: str) -> str:
    r"""Return the name of a file as an object has it: bytes that are not UTF-8 are written as \xff."""
    return os.fsencode(name).decode(errors="backslashreplace")


def checkpoint_sync(
    errand: Errand, means: Means, stores: Stores, say: Callable[[SyncEvent], None]
) -> CheckpointSync | None:
    """Return the sync of an attempt's checkpoint directory, None when the attempt has none."""
    places = errand.places
    checkpoints, directory = places.staging.checkpoints, places.checkpoint_directory
    if checkpoints is None or directory is None:
        return None
    uid, gid = errand.owner if errand.owner is not None else (None, None)
    return CheckpointSync(
        stores.open(checkpoints.uri, write=True),
        # The job owns what is below its private directory where it is the daemon's own user.
        f"{means.near(places.root)}/./{places.inside(checkpoints.path)}",
        errand.fence,
        publish=checkpoints.publish,
        node=(checkpoints.writer, checkpoints.writers),
        known_as=(posixpath.normpath(checkpoints.path), means.near(directory)),
        uid=uid,
        gid=gid,
        say=say,
        writers=means.writers,
    )


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
