"""Whether this host can do what jobs will ask of it, and how to fix what it cannot: `windfall doctor`."""
