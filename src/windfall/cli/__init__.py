"""`windfall`: speaks to the API like any client, and starts the daemon. The package itself loads nothing."""
