"""Everything that an attempt needs before its process starts, brought from scratch each time.

Decides the order: room first, then the checkpoint, then small files, code, inputs. Must not know the agent, nor
how long the attempt has waited.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from windfall.agent.courier.archives import unpack
from windfall.agent.courier.channels import bring_channel, checked_name
from windfall.agent.courier.errors import CannotBring
from windfall.agent.courier.feeder import Order, failed_path, make_pipe
from windfall.agent.courier.git import Checkout, Permission
from windfall.agent.courier.means import Means
from windfall.agent.courier.messages import Errand
from windfall.agent.courier.porters import porter_mark
from windfall.agent.courier.stores import Stores
from windfall.agent.courier.taking import check_output
from windfall.agent.courier.tree import Tree
from windfall.agent.places import INPUT, OWN
from windfall.agent.settings import AgentSettings
from windfall.agent.sync.checkpoint_sync import CheckpointSync
from windfall.jobs.staging import Archive, Channel, Mark
from windfall.objects.errors import NotFound

_INCOMING = f"{OWN}/incoming"


@dataclass(frozen=True, slots=True)
class Brought:
    """What the attempt begins with."""

    restored: Mark | None = None
    commit: str | None = None
    #: What a person may want to know of the checkpoints that could not be used.
    passed_over: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bringing:
    """One attempt's needs and the means to meet them."""

    errand: Errand
    settings: AgentSettings
    means: Means
    stores: Stores
    tree: Tree
    #: Hears what is being done, for people.
    doing: Callable[[str], None]
    #: Does something again while the store cannot be reached.
    insist: Callable[[Callable[[], None]], None]

    def bring(self, sync: CheckpointSync | None, deadline: float) -> Brought:
        """Bring everything; errors of the courier, of the sync and of the store mean that it cannot be."""
        staging = self.errand.places.staging
        for output in staging.outputs:
            check_output(output, self.stores)
        self._make_room()
        # First, while there is nothing else that git, which is the job's user, could reach.
        commit = self._check_out()
        self._make_directories()
        restored: Mark | None = None
        passed_over: tuple[str, ...] = ()
        if sync is not None:
            self.doing("restoring the checkpoint")
            back = sync.restore(deadline)
            restored, passed_over = back.mark, back.passed_over
            self._keep_checkpoints()
        for file in staging.files:
            content = self.errand.places.translated(file.content)
            self.tree.write(self._inside(file.path), content.encode())
        for archive in staging.archives:
            self.doing("unpacking code")
            self.insist(lambda archive=archive: self._unpack(archive))  # type: ignore[misc]  # bound in the loop
        for channel in staging.channels:
            if channel.mode != "Pipe":
                self.doing(f"bringing channel {channel.name}")
                self.insist(lambda channel=channel: self._bring_channel(channel))  # type: ignore[misc]  # the same
        self._open_pipes()
        self.tree.open()
        return Brought(restored, commit, passed_over)

    def _inside(self, path: str) -> str:
        return self.errand.places.inside(path)

    def _make_room(self) -> None:
        staging = self.errand.places.staging
        if staging.git is not None or any(channel.mode == "Pipe" for channel in staging.channels):
            # Those that a courier before this one has started.
            self.means.kill_porters()
        self.tree.empty()
        self.tree.make_closed(OWN)
        self.tree.make_closed(_INCOMING)

    def _make_directories(self) -> None:
        for path in self.errand.places.kept_directories(self.errand.directory):
            self.tree.make(path)

    @property
    def _works_inside(self) -> bool:
        return self.errand.directory.startswith(f"{self.errand.places.root}/")

    def _keep_checkpoints(self) -> None:
        checkpoints = self.errand.places.staging.checkpoints
        assert checkpoints is not None
        self.tree.keep(self._inside(checkpoints.path))

    def _unpack(self, archive: Archive) -> None:
        path = f"{self.tree.root}/{_INCOMING}/archive"
        target = self._inside(archive.path)
        self.tree.give_directory(target)
        try:
            store, name = self.stores.open_object(archive.uri)
            store.get_file(name, path)
            unpack(path, self.tree, target, self.stores.check)
        except NotFound:
            raise CannotBring(f"there is no {archive.uri}: upload it, or name another") from None
        finally:
            if os.path.lexists(path):
                os.unlink(path)

    def _check_out(self) -> str | None:
        source = self.errand.places.staging.git
        if source is None:
            return None
        self.doing(f"checking out {source.revision}")
        directory = self.errand.directory
        if source.path is not None:
            self.tree.give_directory(self._inside(source.path))
            directory = self.errand.places.real(source.path)
        elif not self._works_inside:
            # The attempt's private working directory; an earlier try may have left something there.
            if not directory.startswith(f"{self.settings.attempts_directory}/"):
                raise CannotBring(f"code is not checked out into {directory}, which belongs to another user")
            Tree(self.means.near(directory), self.errand.owner).empty()
        if self.errand.owner is not None:
            os.chown(directory, *self.errand.owner, follow_symlinks=False)
            os.chmod(directory, 0o700)
        mark = porter_mark(self.errand.token, self.settings.agent_id)
        apart = self.means.apart or self.errand.owner is not None
        local = self.errand.storage.may_clone_locally
        scratch = f"{self.errand.places.root}/{_INCOMING}"
        checkout = Checkout(
            directory,
            scratch,
            self.errand.owner,
            mark,
            apart=apart,
            local=local,
            permission=self._permission(),
        )
        with self.tree.passable():
            return checkout.bring(source.url, source.revision)

    def _permission(self) -> Permission:
        """The credential as it is now; it may have been replaced since the attempt before."""
        name, found = self.errand.credential, list[str | None]()
        self.insist(lambda: found.append(self.means.credential()))
        return Permission.of(name, found[-1])

    def _bring_channel(self, channel: Channel) -> None:
        base = None if channel.path is None else self._inside(channel.path)
        bring_channel(channel, self.stores, self.tree, f"{self.tree.root}/{_INCOMING}", base)

    def _open_pipes(self) -> None:
        piped = tuple(channel for channel in self.errand.places.staging.channels if channel.mode == "Pipe")
        if not piped:
            return
        self.tree.make(INPUT)
        for channel in piped:
            checked_name(channel.name)
            make_pipe(self.tree, channel, 0, is_foreign=self.errand.is_foreign)
        order = Order(
            self.tree.root,
            piped,
            self.errand.owner,
            self.settings.objects_file,
            self.errand.storage,
            failed_path(self.errand),
            self.errand.is_foreign,
        )
        self.means.start_feeder(order)
