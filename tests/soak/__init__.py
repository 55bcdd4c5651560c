"""Long attacks with fixed seeds: `make soak` runs them, a short form of each runs with every `make test`."""
