-- The history of schedules that are gone is found by its age.
CREATE INDEX ticks_by_age ON ticks (due_at) WHERE undone = 0;
