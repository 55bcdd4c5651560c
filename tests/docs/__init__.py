"""Documentation under test: what the pages promise exists, and what is generated is fresh."""
