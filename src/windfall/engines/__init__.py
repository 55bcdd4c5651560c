"""Engines launch instances and start attempts on them. One folder each; all behind control.ports.Engine."""
