"""The one place where a caller's tenant decides what exists for it: what it reads, and what its commands can name."""
