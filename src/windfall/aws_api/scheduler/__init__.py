"""EventBridge Scheduler's API: schedules, their groups, and tags."""
