"""Runs tests again and again, in a new order each time, and keeps what it takes to explain each failure."""
