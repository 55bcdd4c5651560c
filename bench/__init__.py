"""Measures Windfall beside a bare posix_spawn loop on the same machine in the same run: `python -m bench`."""
