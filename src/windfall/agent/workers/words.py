"""What a keeper says to its agent that both must spell alike.

Apart from the keeper, so that an agent does not load what keepers need. Must not know what either makes of it.
"""

from __future__ import annotations

#: Said beside `idle`, when the engine killed something in a container.
OUT_OF_MEMORY = b"out of memory"
