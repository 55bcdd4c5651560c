"""Keeps a checkpoint directory in the object store while its job runs, and brings it back before the next try.

Decides when a picture of the directory is committed: at once when it is all of the directory, and after a moment when
something in it is still being written. Each file's content was read while its stamp stayed what a look had found; what
one look cannot take, the next takes. Must not know about attempts, notices or processes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from windfall.agent.sync.archive import Archive
from windfall.agent.sync.clocks import Clocks
from windfall.agent.sync.endings import half_written, told
from windfall.agent.sync.errors import AbandonedError, DamagedError, NeighbourDamagedError
from windfall.agent.sync.lag import Lag
from windfall.agent.sync.manifests import FileEntry, Manifest, Order
from windfall.agent.sync.marks import title_of
from windfall.agent.sync.moves import Moves
from windfall.agent.sync.pictures import Picture, Pictures
from windfall.agent.sync.publishing import Publisher
from windfall.agent.sync.reports import Happening, Restored, Say, Stage, Synced, SyncEvent, no_stage
from windfall.agent.sync.restoring import Place, Source, as_files, restore
from windfall.agent.sync.scanning import Look, look_through
from windfall.agent.sync.sharing import SharedPrefix
from windfall.agent.sync.stillness import Judgement, Stillness
from windfall.agent.sync.uploading import Counted, Uploader, read_piece
from windfall.agent.sync.writers import FileId, open_for_writing
from windfall.jobs.staging import Mark
from windfall.objects.errors import Full, ObjectsError, Refused, Unreachable
from windfall.objects.port import ObjectStore

CHUNK_BYTES = 16 << 20
#: How long one pass uploads before what is whole by then is committed and the directory is read again.
_WORK_S = 2.0
#: How long a commit waits for all of the directory to be at rest, when a part of it could be committed.
_PATIENCE_S = 1.5
#: Committing takes at most one part in N of the time: a manifest of many files costs something.
_COMMIT_SHARE = 10


class CheckpointSync:
    """One checkpoint directory and its prefix in the store, for the attempt with this fence.

    `node` says which of how many nodes of the job this is, all of which write below the prefix; `known_as` are
    absolute paths by which the job may call the directory in its links. Deadlines are seconds
    of the monotonic clock. A call may raise SupersededError, after which there is nothing left to do. `flush` may be
    called while another thread is in `pass_once`, which then ends early.
    """

    def __init__(
        self,
        objects: ObjectStore,
        directory: str,
        fence: int,
        *,
        publish: bool = False,
        node: tuple[int, int] = (0, 1),
        known_as: Collection[str] = (),
        chunk_bytes: int = CHUNK_BYTES,
        keep: int = 3,
        settle_s: float = 0.5,
        rest_s: float = 20.0,
        threads: int = 4,
        uid: int | None = None,
        gid: int | None = None,
        say: Say = lambda _event: None,
        stage: Stage = no_stage,
        clocks: Clocks | None = None,
        writers: Callable[[Collection[FileId]], Mapping[FileId, bool]] = open_for_writing,
    ) -> None:
        self._directory = directory.rstrip("/")
        self._known_as = (self._directory, *known_as)
        self._place = Place(self._directory, uid, gid)
        self._threads = threads
        self._chunk_bytes = chunk_bytes
        self._say = say
        self._stage = stage
        self._clocks = clocks or Clocks()
        self._prefix = SharedPrefix(objects, *node, fence)
        self._archive = Archive(self._prefix.own, fence, keep, stage)
        self._uploader = Uploader(self._archive, self._directory, chunk_bytes, threads)
        self._publisher = Publisher(self._archive, self._directory, say, stage) if publish else None
        self._stillness = Stillness(settle_s, rest_s, writers)
        self._pictures = Pictures(rest_s)
        self._moves = Moves(self._directory)
        self._look: Look | None = None
        #: Files that a look found to be logs, or never at rest: their ends are not torn ones.
        self._never_whole: frozenset[str] = frozenset()
        self._waiting_since: float | None = None
        self._not_before = 0.0
        self._lag = Lag(objects.uri)
        self._begun = False
        self._is_settled = False
        self._killed_at: int | None = None
        self._held_back: str | None = None
        self._told: set[str] = set()
        self._alarm: str | None = None
        self._turn = threading.Lock()
        self._called_off = threading.Event()

    def restore(self, deadline: float | None = None) -> Restored:
        """Fill the directory with the newest checkpoint that verifies; what was in it is replaced.

        A store that does not answer is asked again until the deadline, then Unreachable is raised.
        """
        with self._turn:
            while True:
                try:
                    restored = self._restore()
                except Unreachable as error:
                    wait_s = self._failing(error)
                    if deadline is not None and self._clocks.monotonic() + wait_s >= deadline:
                        raise
                    self._clocks.sleep(wait_s)
                else:
                    self._recovered()
                    return restored

    def pass_once(self) -> Synced:
        """Look, upload what is still, commit what may be. Returns at once while a failing store is left alone."""
        counted = Counted()
        with self._turn:
            if not self._lag.wait_s(self._clocks.monotonic()):
                self._try(lambda: self._advance(counted, self._called_off.is_set, final=False))
            return self._report(counted)

    def flush(self, deadline: float, killed_at: int | None = None) -> Synced:
        """Commit the directory as it is now that its process is gone; try until the deadline.

        `killed_at`, in milliseconds, says that the process did not end by itself: of a file that it was writing in
        place at that moment, and of all that it had written over since the last commit, the committed versions stand,
        and the alarm names the file. What is new, and what was moved to its name, is kept.
        Comes back at the deadline even when the store hangs; a thread that is left behind can only add pieces or a
        commit that is true.
        """
        counted = Counted()
        failures: list[BaseException] = []

        def work() -> None:
            try:
                self._flush(counted, deadline, killed_at)
            except BaseException as error:  # noqa: BLE001 (carried over to the thread that waits)
                failures.append(error)

        self._called_off.set()
        worker = threading.Thread(target=work, name="windfall-flush", daemon=True)
        worker.start()
        worker.join(max(0.0, deadline - self._clocks.monotonic()))
        if failures:
            raise failures[0]
        report = self._report(counted)
        if worker.is_alive() or not self._is_settled:
            return replace(report, alarm=report.alarm or "the time was up before everything was in the store")
        self.close()
        unread = (
            f"{path} cannot be read ({why}); it is not stored"
            for path, why in self._uploader.unreadable.items()
        )
        return replace(report, alarm=self._held_back or next(unread, report.alarm), is_whole=True)

    def _flush(self, counted: Counted, deadline: float, killed_at: int | None) -> None:
        monotonic = self._clocks.monotonic
        self._is_settled = False

        def is_over() -> bool:
            return monotonic() >= deadline

        with self._turn:
            self._killed_at = killed_at
            self._called_off.clear()
            while not self._is_settled and not is_over():
                self._try(lambda: self._advance(counted, is_over, final=True))
                if not self._is_settled:
                    pause_s = max(0.05, self._lag.wait_s(monotonic()))
                    self._clocks.sleep(max(0.0, min(pause_s, deadline - monotonic())))

    def close(self) -> None:
        """Let go of all files; nothing is uploaded after this."""
        self._uploader.close()
        self._moves.close()

    def _advance(self, counted: Counted, should_stop: Callable[[], bool], *, final: bool) -> None:
        """One look and all that follows from it."""
        self._begin()
        try:
            self._look = look_through(self._directory, self._look, self._known_as)
        except FileNotFoundError:
            # Never taken for a directory from which everything was deleted.
            self._is_settled = final
            return
        look = self._prefix.own_part(self._look)
        self._uploader.hold(self._stillness.short_lived(look.files))
        self._moves.listen(look.directories, look.files)
        now = self._clocks.monotonic()
        judgement = self._judged(look, now, final=final)
        self._note_lag(look, judgement, now)
        self._stage("looked")
        files = self._pictures.to_upload(look, judgement)
        logs = judgement.appended
        uploaded = self._uploader.upload(files, counted, should_stop, appended=logs, within_s=_WORK_S)
        self._pictures.uploaded(uploaded, look)
        self._stage("uploaded")
        judgement = judgement.without(self._uploader.unreadable)
        self._tell_left_out(look, judgement)
        picture = self._pictures.picture(look, judgement, now, final=final)
        is_committed = picture is not None and (final or self._is_due(picture, now))
        began = self._clocks.monotonic()
        if picture is not None and is_committed:
            self._commit(picture, look)
        elif picture is None:
            self._waiting_since = None
        self._note_lag(look, judgement, now)
        self._follow_up(should_stop, swept=is_committed)
        if is_committed:
            self._not_before = now + _COMMIT_SHARE * (self._clocks.monotonic() - began)
        self._is_settled = final and self._pictures.has_all(look, judgement.still)

    def _judged(self, look: Look, now: float, *, final: bool) -> Judgement:
        changed = self._pictures.changed(look)
        judgement = self._stillness.judge(look.files, changed, now, self._clocks.of_files(look))
        if not final:
            self._never_whole = (
                judgement.restless | judgement.appended | self._never_whole
            ) & look.files.keys()
            return judgement
        torn = self._torn(look, [path for path in changed if path not in self._never_whole])
        return Judgement(still=frozenset(changed) - torn, moving=torn)

    def _is_due(self, picture: Picture, now: float) -> bool:
        if self._waiting_since is None:
            self._waiting_since = now
        return now >= self._not_before and (picture.is_whole or now - self._waiting_since >= _PATIENCE_S)

    def _note_lag(self, look: Look, judgement: Judgement, now: float) -> None:
        self._lag.differ(self._pictures.differing(look) - judgement.restless, now, judgement.moving)

    def _torn(self, look: Look, changed: Collection[str]) -> frozenset[str]:
        """Files that were being written when the process was killed."""
        self._held_back = None
        if self._killed_at is None:
            return frozenset()
        written = [path for path in changed if path not in self._stillness.replaced]
        written = [path for path in written if not self._moves.has(path, look.files[path].stamp.mtime_ns)]
        torn = half_written(look, written, self._killed_at, self._directory)
        if torn:
            over = any(self._pictures.is_in_place(path, look.files[path]) for path in torn)
            self._held_back = told(torn, written_over=over)
            self._say(SyncEvent(Happening.LEFT_OUT, self._held_back))
        return frozenset(torn)

    def _commit(self, picture: Picture, look: Look) -> None:
        title = title_of(picture.files, self._read)
        at = self._clocks.wall_ms()

        def build(order: Order) -> Manifest:
            return Manifest(
                order=order,
                at=at,
                state_at=title.state_at or at,
                name=title.name,
                step=title.step,
                chunk_bytes=self._chunk_bytes,
                files=picture.files,
                directories=picture.directories,
                links=picture.links,
            )

        manifest = self._archive.commit(build)
        self._pictures.commit(manifest)
        self._waiting_since = None
        self._lag.committed(self._pictures.differing(look), self._clocks.monotonic())
        self._say(SyncEvent(Happening.COMMITTED, f"{title.name} is stored", manifest.mark))

    def _follow_up(self, should_stop: Callable[[], bool], *, swept: bool) -> None:
        """What is not needed for safety: plain names, then deletions."""
        committed = self._pictures.committed
        if committed is None:
            return
        if self._publisher is not None and self._publisher.is_behind(committed):
            self._publisher.publish(committed, should_stop)
        if swept and committed.order.fence == self._archive.fence:
            self._archive.sweep(self._pictures.needed() | self._uploader.digests(), self._clocks.wall_ms())
            self._prefix.forget_former_writers()

    def _begin(self) -> None:
        """Learn what is committed, where this process did not restore it itself."""
        if self._begun:
            return
        self._archive.load()
        self._prefix.recall()
        for order in self._archive.orders():
            try:
                manifest = self._archive.manifest(order)
            except DamagedError:
                continue  # told when it is restored; here it only means that its pieces are not counted on
            if not self._archive.missing(manifest):
                self._pictures.begin(manifest)
                break
        self._begun = True

    def _restore(self) -> Restored:
        self._archive.load(again=True)
        self._prefix.look()
        passed_over: list[str] = []
        for order in self._archive.orders():
            try:
                manifest = self._archive.manifest(order)
                if missing := self._archive.missing(manifest):
                    raise DamagedError(f"{len(missing)} of its pieces are missing, {missing[0][:12]} for one")
                return self._bring(manifest, passed_over)
            except DamagedError as error:
                passed_over.append(f"{order.fence:013d}-{order.seq:06d}: {error}")
                text = f"a damaged checkpoint is passed over, the one before it is tried: {passed_over[-1]}"
                self._say(SyncEvent(Happening.PASSED_OVER, text))
        return self._bring(None, passed_over)

    def _bring(self, manifest: Manifest | None, passed_over: list[str]) -> Restored:
        """Fill the directory with one's own picture and those of the other writers of the prefix."""
        damaged = bool(self._archive.orders()) and manifest is None
        while True:
            content = self._prefix.content(manifest, with_plain=not damaged)
            sources = [
                Source(part.manifest, part.files, (part.source or self._archive).get_piece, part.links)
                for part in content.parts
            ]
            try:
                objects, place = self._archive.objects, self._place
                restore(sources, content.plain, objects, place, self._threads, self._stage)
            except NeighbourDamagedError as error:
                self._prefix.pass_over(error.writer)
                self._say(SyncEvent(Happening.PASSED_OVER, f"a damaged checkpoint is passed over: {error}"))
                continue
            break
        plain = as_files(content.plain)
        if self._publisher is not None:
            if plain and self._prefix.is_first:
                self._publisher.adopt(plain)
            self._publisher.disown(content.lost)
            self._publisher.claim(self._prefix.taken_over(content))
        self._prefix.note(content, plain)
        mark = content.mark
        if mark is None and plain:
            title = title_of(plain, self._read)
            size = sum(file.bytes for file in plain)
            mark = Mark(title.name, title.state_at, title.state_at, size, title.step)
        files = sum(len(part.files) for part in content.parts) + len(plain)
        self._pictures.begin(content.own)
        self._begun = True
        if mark is not None:
            self._say(SyncEvent(Happening.RESTORED, f"{mark.name} is back, {files} files", mark))
        return Restored(mark, files, 0 if mark is None else mark.bytes, tuple(passed_over))

    def _read(self, file: FileEntry) -> bytes | None:
        try:
            return read_piece(self._directory, file.path, 0, file.bytes)
        except OSError:
            return None

    def _try(self, work: Callable[[], None]) -> None:
        try:
            work()
        except AbandonedError:
            return
        except ObjectsError as error:
            self._failing(error)
        else:
            self._recovered()

    def _failing(self, error: ObjectsError) -> float:
        now = self._clocks.monotonic()
        if self._lag.failed(str(error), grave=isinstance(error, Refused | Full), now=now):
            self._say(SyncEvent(Happening.FAILING, str(error)))
        return self._lag.wait_s(now)

    def _recovered(self) -> None:
        if self._lag.recovered():
            self._say(SyncEvent(Happening.RECOVERED, f"{self._archive.objects.uri} answers again"))

    def _report(self, counted: Counted) -> Synced:
        now = self._clocks.monotonic()
        alarm = self._lag.alarm(now)
        if alarm is not None and self._alarm is None:
            self._say(SyncEvent(Happening.ALARM, alarm))
        self._alarm = alarm
        committed = self._pictures.committed
        mark = None if committed is None else committed.mark
        return Synced(mark, counted.bytes, self._lag.pending, self._lag.seconds(now), alarm)

    def _tell_left_out(self, look: Look, judgement: Judgement) -> None:
        reasons = {path: f"{reason}; it is not stored" for path, reason in look.odd.items()}
        for path in judgement.restless:
            reasons[path] = "it is never at rest; it is stored as it last was, and when the process has gone"
        for path, reason in self._uploader.unreadable.items():
            reasons[path] = f"it cannot be read ({reason}); it is not stored"
        for path in reasons.keys() - self._told:
            self._told.add(path)
            self._say(SyncEvent(Happening.LEFT_OUT, f"{path}: {reasons[path]}"))
