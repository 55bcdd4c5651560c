-- Several daemons on one database: who leads, the fence before every commit, who is there, and the followers' commands.
CREATE TABLE leadership (
    -- There is one row.
    alone      BOOLEAN PRIMARY KEY DEFAULT TRUE CHECK (alone),
    -- Names this store for as long as it exists.
    identity   TEXT NOT NULL DEFAULT md5(random()::text || clock_timestamp()::text),
    epoch      BIGINT NOT NULL,
    holder     TEXT NOT NULL,
    address    TEXT NOT NULL,
    lease_s    DOUBLE PRECISION NOT NULL,
    renewed_at TIMESTAMPTZ NOT NULL
);
INSERT INTO leadership (epoch, holder, address, lease_s, renewed_at) VALUES (0, '', '', 0, '-infinity');

-- A table of its own, so that a long commit, which holds this row, does not keep the lease from being renewed.
CREATE TABLE fence (
    alone BOOLEAN PRIMARY KEY DEFAULT TRUE CHECK (alone),
    epoch BIGINT NOT NULL,
    round BIGINT NOT NULL
);
INSERT INTO fence (epoch, round) VALUES (0, 0);

-- How far a former leader came: it learns here whether a round was written whose acknowledgement it lost.
CREATE TABLE past_leaders (
    epoch    BIGINT PRIMARY KEY,
    holder   TEXT NOT NULL,
    rounds   BIGINT NOT NULL,
    ended_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE daemons (
    name    TEXT COLLATE "C" PRIMARY KEY,
    address TEXT NOT NULL,
    pid     BIGINT NOT NULL,
    seen_at TIMESTAMPTZ NOT NULL
);

CREATE TABLE inbox (
    id      TEXT COLLATE "C" PRIMARY KEY,
    seq     BIGINT GENERATED ALWAYS AS IDENTITY,
    command TEXT NOT NULL DEFAULT '',
    body    TEXT NOT NULL DEFAULT '',
    sent_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    -- How many leaders have met it: one that no leader survives is given up.
    leaders BIGINT NOT NULL DEFAULT 0,
    reply   TEXT
);
CREATE INDEX inbox_unanswered ON inbox (seq) WHERE reply IS NULL;

-- Daemons wait for this word rather than look again and again: a command, a reply, a new leader.
CREATE FUNCTION tell_daemons() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('windfall_news', TG_TABLE_NAME);
    RETURN NULL;
END
$$;
CREATE TRIGGER inbox_tells AFTER INSERT OR UPDATE ON inbox FOR EACH STATEMENT EXECUTE FUNCTION tell_daemons();
CREATE TRIGGER leadership_tells AFTER UPDATE OF epoch, holder ON leadership
    FOR EACH STATEMENT EXECUTE FUNCTION tell_daemons();
