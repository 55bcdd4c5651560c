-- What daemons share that have no data directory in common: keys, secrets, and which directories there are. Values are
-- sealed by the daemons; NULL is one that was removed.
CREATE TABLE shared_values (
    name    TEXT COLLATE "C" PRIMARY KEY,
    value   BYTEA,
    version BIGINT NOT NULL,
    set_at  BIGINT NOT NULL
);
