-- Texts are compared byte by byte (COLLATE "C"), so that order and ranges are the same whatever the server's language.
-- Everything small is a key and a record (JSON of the domain's own dataclass).
CREATE TABLE environments (name TEXT COLLATE "C" PRIMARY KEY, record TEXT NOT NULL);
CREATE TABLE queues (name TEXT COLLATE "C" PRIMARY KEY, record TEXT NOT NULL);
CREATE TABLE images (pattern TEXT COLLATE "C" PRIMARY KEY, record TEXT NOT NULL);
CREATE TABLE instances (id TEXT COLLATE "C" PRIMARY KEY, record TEXT NOT NULL);
CREATE TABLE machines (id TEXT COLLATE "C" PRIMARY KEY, record TEXT NOT NULL);
CREATE TABLE definitions (
    name     TEXT COLLATE "C" NOT NULL,
    revision BIGINT NOT NULL,
    active   BIGINT NOT NULL,
    record   TEXT NOT NULL,
    PRIMARY KEY (name, revision)
);

-- Jobs, arrays and children. `seq` is the order of arrival.
-- A child has neither queue, name, definition nor submission of its own: they are its parent's.
CREATE TABLE jobs (
    seq         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id          TEXT COLLATE "C" NOT NULL,
    parent      TEXT COLLATE "C",
    child_index BIGINT,
    queue       TEXT COLLATE "C",
    name        TEXT COLLATE "C",
    name_folded TEXT COLLATE "C",
    definition  TEXT COLLATE "C",
    created_at  BIGINT NOT NULL,
    state       TEXT COLLATE "C" NOT NULL,
    stopped_at  BIGINT,
    ord         BIGINT NOT NULL,
    record      TEXT NOT NULL,
    submission  TEXT
);
CREATE UNIQUE INDEX jobs_by_id ON jobs (id);
CREATE INDEX jobs_by_state ON jobs (queue, state, created_at, seq) WHERE queue IS NOT NULL;
CREATE INDEX jobs_by_name ON jobs (queue, name_folded, created_at, seq) WHERE queue IS NOT NULL;
CREATE INDEX children_by_index ON jobs (parent, child_index) WHERE parent IS NOT NULL;
CREATE INDEX children_finished ON jobs (parent, child_index, state)
    WHERE parent IS NOT NULL AND state IN ('SUCCEEDED', 'FAILED');
CREATE INDEX jobs_live ON jobs (ord, seq) WHERE state NOT IN ('SUCCEEDED', 'FAILED');
CREATE INDEX jobs_finished ON jobs (COALESCE(stopped_at, created_at), seq)
    WHERE parent IS NULL AND state IN ('SUCCEEDED', 'FAILED');

-- How many top-level jobs have finished, so that nobody counts a million rows. Kept by triggers: no path forgets it.
CREATE TABLE finished_counts (
    queue  TEXT COLLATE "C" NOT NULL,
    state  TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    PRIMARY KEY (queue, state)
);

CREATE FUNCTION count_finished_inserted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO finished_counts (queue, state, number)
    SELECT queue, state, COUNT(*) FROM new_rows
    WHERE parent IS NULL AND state IN ('SUCCEEDED', 'FAILED')
    GROUP BY queue, state ORDER BY queue, state
    ON CONFLICT (queue, state) DO UPDATE SET number = finished_counts.number + excluded.number;
    RETURN NULL;
END $$;

CREATE FUNCTION count_finished_updated() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO finished_counts (queue, state, number)
    SELECT queue, state, SUM(change) FROM (
        SELECT queue, state, 1 AS change FROM new_rows WHERE parent IS NULL AND state IN ('SUCCEEDED', 'FAILED')
        UNION ALL
        SELECT queue, state, -1 FROM old_rows WHERE parent IS NULL AND state IN ('SUCCEEDED', 'FAILED')
    ) AS changes
    GROUP BY queue, state HAVING SUM(change) <> 0 ORDER BY queue, state
    ON CONFLICT (queue, state) DO UPDATE SET number = finished_counts.number + excluded.number;
    RETURN NULL;
END $$;

CREATE FUNCTION count_finished_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE finished_counts SET number = finished_counts.number - gone.number
    FROM (
        SELECT queue, state, COUNT(*) AS number FROM old_rows
        WHERE parent IS NULL AND state IN ('SUCCEEDED', 'FAILED') GROUP BY queue, state
    ) AS gone
    WHERE finished_counts.queue = gone.queue AND finished_counts.state = gone.state;
    RETURN NULL;
END $$;

CREATE TRIGGER count_inserted AFTER INSERT ON jobs
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION count_finished_inserted();
CREATE TRIGGER count_updated AFTER UPDATE ON jobs
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION count_finished_updated();
CREATE TRIGGER count_deleted AFTER DELETE ON jobs
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION count_finished_deleted();

CREATE TABLE log_streams (
    log_group  TEXT COLLATE "C" NOT NULL,
    name       TEXT COLLATE "C" NOT NULL,
    task_id    TEXT NOT NULL,
    job_id     TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (log_group, name)
);
CREATE INDEX log_streams_by_job ON log_streams (job_id);

-- Numbers that must outlive the rows they were taken from: the highest order ever given to a job.
CREATE TABLE highest (name TEXT COLLATE "C" PRIMARY KEY, number BIGINT NOT NULL);
