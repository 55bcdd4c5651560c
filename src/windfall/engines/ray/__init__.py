"""Machines of a Ray cluster: Ray brings them and says what it knows about them; the link to each agent decides."""
