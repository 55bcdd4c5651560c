-- Scheduling policies, shares, consumable resources, service environments, schedules: a kind, a key and a record.
CREATE TABLE declarations (
    kind   TEXT COLLATE "C" NOT NULL,
    name   TEXT COLLATE "C" NOT NULL,
    record TEXT NOT NULL,
    PRIMARY KEY (kind, name)
);

CREATE TABLE service_jobs (
    seq        BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id         TEXT COLLATE "C" NOT NULL,
    queue      TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    state      TEXT COLLATE "C" NOT NULL,
    stopped_at BIGINT,
    record     TEXT NOT NULL
);
CREATE UNIQUE INDEX service_jobs_by_id ON service_jobs (id);
CREATE INDEX service_jobs_live ON service_jobs (seq) WHERE state NOT IN ('SUCCEEDED', 'FAILED');
CREATE INDEX service_jobs_by_state ON service_jobs (queue, state, created_at, seq);

-- The history of schedules: one row for each due time that was decided.
CREATE TABLE ticks (
    schedule TEXT COLLATE "C" NOT NULL,
    due_at   BIGINT NOT NULL,
    -- 1 until it is known what became of it
    undone   BIGINT NOT NULL,
    record   TEXT NOT NULL,
    PRIMARY KEY (schedule, due_at)
);
CREATE INDEX ticks_undone ON ticks (schedule, due_at) WHERE undone = 1;
