"""The store's side of a checkpoint directory: fence, pieces, manifests, and what may be deleted.

Decides the order in which things become durable: pieces, then the manifest (create-only, the commit point), and
deletions last. Two attempts of one job may be alive at once; the one with the lower fence stops writing as soon as it
looks, and what it commits before that sorts below. Must not know the local directory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection

from windfall.agent.sync.errors import DamagedError, SupersededError
from windfall.agent.sync.manifests import (
    CHUNKS,
    DAMAGED,
    FENCE,
    MANIFESTS,
    Manifest,
    Order,
    chunk_key,
    decode,
    encode,
    order_of,
)
from windfall.agent.sync.reports import Stage
from windfall.objects.errors import AlreadyThere, NotFound
from windfall.objects.port import Content, Entry, ObjectStore

#: How long pieces that no manifest names are left alone: they may be about to be committed.
ORPHAN_MS = 3_600_000


class Archive:
    """What the store holds for one job, as the attempt with this fence sees it."""

    def __init__(self, objects: ObjectStore, fence: int, keep: int, stage: Stage) -> None:
        self.objects = objects
        self.fence = fence
        self._keep = max(1, keep)
        self._stage = stage
        self._loaded = False
        self._chunks: dict[str, Entry] = {}
        #: Pieces that need not be uploaded again, with their length.
        self._present: dict[str, int] = {}
        self._manifests: dict[Order, Manifest | None] = {}

    def load(self, *, again: bool = False) -> None:
        """Take the prefix over and learn what it holds; SupersededError where a newer attempt has it."""
        if self._loaded and not again:
            return
        self.check_fence()
        orders = [order_of(entry.key) for entry in self.objects.list(MANIFESTS)]
        self._manifests = {order: None for order in orders if order is not None}
        newest = max(self._manifests, default=None)
        if newest is not None and newest.fence > self.fence:
            raise SupersededError(self.objects.uri, self.fence, newest.fence)
        self._chunks = {entry.key.rpartition("/")[2]: entry for entry in self.objects.list(CHUNKS)}
        self._present = {digest: entry.bytes for digest, entry in self._chunks.items()}
        # A superseded attempt may be deleting old manifests' pieces at this moment: do not build upon them.
        for digest in self._needed_by(self.orders()[self._keep :]) - self._needed_by(
            self.orders()[: self._keep]
        ):
            self._present.pop(digest, None)
        self._loaded = True

    def check_fence(self) -> None:
        """See that no newer attempt has taken over, and say again that this one has."""
        try:
            found = int(self.objects.get(FENCE))
        except (NotFound, ValueError):
            found = -1
        if found > self.fence:
            raise SupersededError(self.objects.uri, self.fence, found)
        if found < self.fence:
            self.objects.put(FENCE, str(self.fence).encode())

    def orders(self) -> list[Order]:
        """All committed manifests, newest first."""
        return sorted(self._manifests, reverse=True)

    def manifest(self, order: Order) -> Manifest:
        """A committed manifest; DamagedError where it cannot be read as one."""
        known = self._manifests.get(order)
        if known is None:
            try:
                known = decode(self.objects.get(order.key), order)
            except NotFound as error:
                raise DamagedError(f"{order.key} has vanished") from error
            self._manifests[order] = known
        return known

    def missing(self, manifest: Manifest) -> list[str]:
        """Pieces of a manifest that are not there, or not in full length."""
        lengths = manifest.piece_bytes()
        return [
            digest
            for digest, length in lengths.items()
            if digest not in self._chunks or self._chunks[digest].bytes != length
        ]

    def has(self, digest: str, length: int) -> bool:
        """Whether a piece need not be put."""
        return self._present.get(digest) == length

    def put_piece(self, digest: str, content: Content) -> None:
        """Make a piece durable."""
        self.objects.put(chunk_key(digest), content)
        self._present[digest] = len(content)
        self._stage("piece-put")

    def get_piece(self, digest: str) -> bytes:
        """A piece that verifies. One that twice does not is moved aside for good; DamagedError."""
        for _ in range(2):  # a second time, because what was wrong may have been the way and not the piece
            try:
                content = self.objects.get(chunk_key(digest))
            except NotFound as error:
                self._forget([digest])
                raise DamagedError(f"piece {digest[:12]} is not there") from error
            if hashlib.sha256(content).hexdigest() == digest:
                return content
        self.check_fence()
        self.objects.copy(chunk_key(digest), f"{DAMAGED}/{digest}")
        self.objects.delete([chunk_key(digest)])
        self._forget([digest])
        raise DamagedError(f"piece {digest[:12]} is not what was put there; it was moved to {DAMAGED}")

    def commit(self, build: Callable[[Order], Manifest]) -> Manifest:
        """Make a picture the newest committed one; its pieces must be durable."""
        self.check_fence()
        seq = max((order.seq for order in self._manifests if order.fence == self.fence), default=0)
        while True:
            seq += 1
            manifest = build(Order(self.fence, seq))
            content = encode(manifest)
            self._stage("before-commit")
            try:
                self.objects.put(manifest.order.key, content, create_only=True)
            except AlreadyThere:
                # Ours, where only the answer was lost; else an earlier process of this attempt has been faster.
                if self.objects.get(manifest.order.key) != content:
                    self._manifests.setdefault(manifest.order)
                    continue
            self._manifests[manifest.order] = manifest
            self._stage("committed")
            return manifest

    def sweep(self, needed: Collection[str], now_ms: int) -> None:
        """Delete what no kept manifest needs; `needed` are pieces that a commit to come counts on."""
        orders = self.orders()
        kept = self._needed_by(orders[: self._keep]) | set(needed)
        dropped = orders[self._keep :]
        if not dropped and not self._chunks:
            return
        self.check_fence()
        # Oldest first, and pieces before their manifest: after a kill in between, the next run finds the manifest again
        # and goes on, and no piece is left that nothing names.
        for order in reversed(dropped):
            doomed = self._needed_by([order]) - kept
            self.objects.delete([chunk_key(digest) for digest in doomed])
            self._forget(doomed)
            self._stage("pieces-deleted")
            self.objects.delete([order.key])
            del self._manifests[order]
            self._stage("manifest-deleted")
        self._sweep_orphans(kept, now_ms)

    def _sweep_orphans(self, kept: set[str], now_ms: int) -> None:
        """Once in a life: pieces that an attempt which was killed has put and never committed."""
        orphans = [
            digest
            for digest, entry in self._chunks.items()
            if digest not in kept and now_ms - entry.changed_at > ORPHAN_MS and digest in self._present
        ]
        self._chunks = {}
        if orphans:
            self.objects.delete([chunk_key(digest) for digest in orphans])
            self._forget(orphans)

    def _needed_by(self, orders: Collection[Order]) -> set[str]:
        digests: set[str] = set()
        for order in orders:
            try:
                digests |= self.manifest(order).digests()
            except DamagedError:
                continue  # it can never be restored, so it needs nothing
        return digests

    def _forget(self, digests: Collection[str]) -> None:
        for digest in digests:
            self._present.pop(digest, None)
            self._chunks.pop(digest, None)
