"""`python -m windfall.cli` is `windfall`, for where the script is not on the path."""

from __future__ import annotations

from windfall.cli.main import main

if __name__ == "__main__":
    main()
