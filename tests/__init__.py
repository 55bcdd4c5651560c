"""All tests. A package, so that test modules can share builders by full imports."""
