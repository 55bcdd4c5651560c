"""The deterministic simulation: the real reactor and scheduler in a world that is driven by one seed."""
