-- Everything small is a key and a record (JSON of the domain's own dataclass).
CREATE TABLE environments (name TEXT PRIMARY KEY, record TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE queues (name TEXT PRIMARY KEY, record TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE images (pattern TEXT PRIMARY KEY, record TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE instances (id TEXT PRIMARY KEY, record TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE machines (id TEXT PRIMARY KEY, record TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE definitions (
    name     TEXT NOT NULL,
    revision INTEGER NOT NULL,
    active   INTEGER NOT NULL,
    record   TEXT NOT NULL,
    PRIMARY KEY (name, revision)
) WITHOUT ROWID;

-- Jobs, arrays and children. `seq` is the order of arrival; every index ends in it without saying so.
-- A child has neither queue, name, definition nor submission of its own: they are its parent's.
CREATE TABLE jobs (
    seq         INTEGER PRIMARY KEY,
    id          TEXT NOT NULL,
    parent      TEXT,
    child_index INTEGER,
    queue       TEXT,
    name        TEXT,
    name_folded TEXT,
    definition  TEXT,
    created_at  INTEGER NOT NULL,
    state       TEXT NOT NULL,
    stopped_at  INTEGER,
    ord         INTEGER NOT NULL,
    record      TEXT NOT NULL,
    submission  TEXT
);
CREATE UNIQUE INDEX jobs_by_id ON jobs (id);
CREATE INDEX jobs_by_state ON jobs (queue, state, created_at) WHERE queue IS NOT NULL;
CREATE INDEX jobs_by_name ON jobs (queue, name_folded, created_at) WHERE queue IS NOT NULL;
CREATE INDEX children_by_index ON jobs (parent, child_index) WHERE parent IS NOT NULL;
CREATE INDEX children_finished ON jobs (parent, child_index, state)
    WHERE parent IS NOT NULL AND state IN ('SUCCEEDED', 'FAILED');
CREATE INDEX jobs_live ON jobs (ord) WHERE state NOT IN ('SUCCEEDED', 'FAILED');
CREATE INDEX jobs_finished ON jobs (COALESCE(stopped_at, created_at))
    WHERE parent IS NULL AND state IN ('SUCCEEDED', 'FAILED');

-- How many top-level jobs have finished, so that nobody counts a million rows. Kept by triggers: no path forgets it.
CREATE TABLE finished_counts (
    queue  TEXT NOT NULL,
    state  TEXT NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (queue, state)
) WITHOUT ROWID;

CREATE TRIGGER count_inserted AFTER INSERT ON jobs
WHEN NEW.parent IS NULL AND NEW.state IN ('SUCCEEDED', 'FAILED')
BEGIN
    INSERT INTO finished_counts (queue, state, number) VALUES (NEW.queue, NEW.state, 1)
    ON CONFLICT (queue, state) DO UPDATE SET number = number + 1;
END;

CREATE TRIGGER count_updated AFTER UPDATE OF state ON jobs
WHEN NEW.parent IS NULL AND NEW.state <> OLD.state
    AND (NEW.state IN ('SUCCEEDED', 'FAILED') OR OLD.state IN ('SUCCEEDED', 'FAILED'))
BEGIN
    UPDATE finished_counts SET number = number - 1 WHERE queue = OLD.queue AND state = OLD.state;
    INSERT INTO finished_counts (queue, state, number)
    SELECT NEW.queue, NEW.state, 1 WHERE NEW.state IN ('SUCCEEDED', 'FAILED')
    ON CONFLICT (queue, state) DO UPDATE SET number = number + 1;
END;

CREATE TRIGGER count_deleted AFTER DELETE ON jobs
WHEN OLD.parent IS NULL AND OLD.state IN ('SUCCEEDED', 'FAILED')
BEGIN
    UPDATE finished_counts SET number = number - 1 WHERE queue = OLD.queue AND state = OLD.state;
END;

CREATE TABLE log_streams (
    log_group  TEXT NOT NULL,
    name       TEXT NOT NULL,
    task_id    TEXT NOT NULL,
    job_id     TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (log_group, name)
) WITHOUT ROWID;
CREATE INDEX log_streams_by_job ON log_streams (job_id);

-- Numbers that must outlive the rows they were taken from: the highest order ever given to a job.
CREATE TABLE highest (name TEXT PRIMARY KEY, number INTEGER NOT NULL) WITHOUT ROWID;
