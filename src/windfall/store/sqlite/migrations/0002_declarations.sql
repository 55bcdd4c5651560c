-- Scheduling policies, shares, consumable resources, service environments, schedules: a kind, a key and a record.
CREATE TABLE declarations (
    kind   TEXT NOT NULL,
    name   TEXT NOT NULL,
    record TEXT NOT NULL,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;

CREATE TABLE service_jobs (
    seq        INTEGER PRIMARY KEY,
    id         TEXT NOT NULL,
    queue      TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    state      TEXT NOT NULL,
    stopped_at INTEGER,
    record     TEXT NOT NULL
);
CREATE UNIQUE INDEX service_jobs_by_id ON service_jobs (id);
CREATE INDEX service_jobs_live ON service_jobs (seq) WHERE state NOT IN ('SUCCEEDED', 'FAILED');
CREATE INDEX service_jobs_by_state ON service_jobs (queue, state, created_at);

-- The history of schedules: one row for each due time that was decided.
CREATE TABLE ticks (
    schedule TEXT NOT NULL,
    due_at   INTEGER NOT NULL,
    -- 1 until it is known what became of it
    undone   INTEGER NOT NULL,
    record   TEXT NOT NULL,
    PRIMARY KEY (schedule, due_at)
) WITHOUT ROWID;
CREATE INDEX ticks_undone ON ticks (schedule, due_at) WHERE undone = 1;
