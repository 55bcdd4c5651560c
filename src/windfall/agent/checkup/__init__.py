"""Whether this host can do what jobs will ask of it, and how to mend what it cannot: `windfall doctor`."""
