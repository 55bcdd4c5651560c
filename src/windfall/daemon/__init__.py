"""The daemon: settings, clock, wiring and the loops. The only place where all of it meets."""
