"""Finds instance types by the names that AWS Batch and SageMaker use, and by what a job needs.

Decides what a name means: a type, a family, `optimal`, a type with SageMaker's `ml.` before it. Must not know what is
free, nor which type is best.
"""

from __future__ import annotations

from collections.abc import Iterable

from windfall.capacity.catalog.errors import UnknownInstanceType
from windfall.capacity.catalog.figures import FIGURES
from windfall.capacity.catalog.instance_types import InstanceType
from windfall.capacity.catalog.reading import read_figures

SAGEMAKER_PREFIX = "ml."
#: AWS Batch's words for "any general type", and the families that they stand for here.
OPTIMAL = frozenset({"optimal", "default_x86_64"})
OPTIMAL_FAMILIES = frozenset({"c5", "c6i", "c7i", "m5", "m6i", "m7i", "r5", "r6i"})
#: What AWS has ended and what is not an instance type, with what to do instead.
GONE = {
    "eia": "Elastic Inference was ended by AWS in April 2024; use a GPU type such as g4dn or g5, or inf2",
    "default_arm64": "Arm types are not offered under that word here; name types or families, such as m7i",
}


class Catalog:
    """Instance types by name, in the order of their table."""

    def __init__(self, types: Iterable[InstanceType]) -> None:
        self._types = {type_.name: type_ for type_ in types}
        self._families: dict[str, list[InstanceType]] = {}
        for type_ in self._types.values():
            self._families.setdefault(type_.family, []).append(type_)

    def find(self, name: str) -> InstanceType | None:
        """The type of that name, with or without SageMaker's `ml.`; retired ones too."""
        return self._types.get(name.removeprefix(SAGEMAKER_PREFIX))

    def select(
        self,
        *,
        family: str | None = None,
        gpus_min: int = 0,
        gpu_model: str | None = None,
        vcpus_min: float = 0,
        memory_mib_min: int = 0,
        include_retired: bool = False,
    ) -> list[InstanceType]:
        """The types that have at least this; a GPU's model is compared without case."""
        return [
            type_
            for type_ in self._types.values()
            if (include_retired or not type_.retired)
            and family in (None, type_.family)
            and type_.gpus >= gpus_min
            and (gpu_model is None or (type_.gpu_model or "").lower() == gpu_model.lower())
            and type_.vcpus >= vcpus_min
            and type_.memory_mib >= memory_mib_min
        ]

    def expand(self, names: Iterable[str]) -> list[InstanceType]:
        """The types that the members of Batch's `instanceTypes` mean, each once, in the order named.

        A retired type or family that is named is taken at its word.
        """
        types: dict[str, InstanceType] = {}
        for name in names:
            types.update((type_.name, type_) for type_ in self._meant(name))
        return list(types.values())

    def _meant(self, name: str) -> list[InstanceType]:
        plain = name.removeprefix(SAGEMAKER_PREFIX)
        if plain in OPTIMAL:
            return [type_ for type_ in self._types.values() if type_.family in OPTIMAL_FAMILIES]
        if plain in self._families:
            return self._families[plain]
        if plain in self._types:
            return [self._types[plain]]
        raise UnknownInstanceType(name, self._advice(name, plain))

    def _advice(self, name: str, plain: str) -> str:
        for beginning, text in GONE.items():
            if plain.startswith(beginning):
                return f"{name} cannot be used: {text}."
        family, dot, _ = plain.partition(".")
        if dot and family in self._families:
            sizes = ", ".join(type_.name for type_ in self._families[family])
            return f"{name} is not in the catalog; of the family {family} it has {sizes}."
        alike = ", ".join(other for other in self._families if other[:1] == plain[:1])
        hint = f"its families in {plain[:1]} are {alike}" if alike else "name a type, a family or `optimal`"
        return (
            f"{name} is neither an instance type nor a family of the catalog; {hint};"
            " `windfall catalog` lists all of it."
        )


CATALOG = Catalog(read_figures(FIGURES))
