"""EC2's instance types, to choose from and to calculate with: `catalog.find("p3.2xlarge")`, `catalog.expand(["g5"])`.

Read from a table in this package at import, without I/O. Figures are typical and dated, for planning and for
simulation; a bill is AWS's own.
"""

from __future__ import annotations

from windfall.capacity.catalog.errors import BadFigures, UnknownInstanceType
from windfall.capacity.catalog.instance_types import SPOT_FACTOR, InstanceType, Price
from windfall.capacity.catalog.lookup import CATALOG, Catalog
from windfall.capacity.catalog.reading import read_figures, write_figures

find = CATALOG.find
select = CATALOG.select
expand = CATALOG.expand

__all__ = [
    "find",
    "select",
    "expand",
    "CATALOG",
    "Catalog",
    "InstanceType",
    "Price",
    "SPOT_FACTOR",
    "read_figures",
    "write_figures",
    "BadFigures",
    "UnknownInstanceType",
]
