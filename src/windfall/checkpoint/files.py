"""Plain files as part of a checkpoint: what a program keeps beside its arrays (logs of metrics, a tokenizer, ...).

They are read at the step boundary like everything else, and put back by rename. Only regular files below the
working directory of the run are taken, so that a checkpoint can never write elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from windfall.checkpoint.errors import Mismatch
from windfall.checkpoint.leaves import Flattened, Frameworks, Leaf, LeafForm, ReadLeaf, Tree

#: The name under which files are kept beside the tracked objects; a dot keeps it out of their way.
NAME = ".files"


class FileBytes(bytes):
    """The content of one file as a leaf."""

    __slots__ = ()

    def form(self) -> LeafForm:
        """As an array of bytes on the host."""
        return LeafForm("file", "uint8", (len(self),), len(self), "cpu", immutable=True)


def collect(root: Path, patterns: Sequence[str]) -> Flattened:
    """Reads all files that match one of the patterns now."""
    names = sorted(
        {
            path.relative_to(root).as_posix()
            for pattern in patterns
            for path in root.glob(pattern)
            if path.is_file() and not path.is_symlink()
        }
    )
    leaves = {name: FileBytes((root / name).read_bytes()) for name in names}
    return Flattened({"names": names}, leaves)


def put_back(root: Path, tree: Tree, read: ReadLeaf) -> None:
    """Replaces each stored file by what it was; others are left alone."""
    for name in tree["names"]:
        target = root / name
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise Mismatch(
                f"the checkpoint names a file outside of {root}: {name!r}; it was not made by this run"
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{target.name}.tmp")
        draft.write_bytes(read(name).buffer)
        draft.replace(target)


class FilesBeside:
    """Frameworks that know files as well; everything else is passed on."""

    def __init__(self, frameworks: Frameworks) -> None:
        self._frameworks = frameworks
        self.flatten = frameworks.flatten
        self.restore = frameworks.restore
        self.start_host_copy = frameworks.start_host_copy
        self.rng_state = frameworks.rng_state
        self.set_rng_state = frameworks.set_rng_state

    def describe(self, leaf: Leaf) -> LeafForm:
        """Of a file or an array."""
        return leaf.form() if isinstance(leaf, FileBytes) else self._frameworks.describe(leaf)

    def host_bytes(self, leaf: Leaf) -> memoryview:
        """Of a file or an array."""
        return memoryview(leaf) if isinstance(leaf, FileBytes) else self._frameworks.host_bytes(leaf)
