"""The embedded store: one file in WAL mode, one writer connection, readers beside it."""
