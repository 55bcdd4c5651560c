-- What is still to be told to a file or a webhook, in the order in which it happened; a row goes when it is delivered.
CREATE TABLE outbox (
    seq         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    destination TEXT COLLATE "C" NOT NULL,
    id          TEXT COLLATE "C" NOT NULL,
    subject     TEXT COLLATE "C" NOT NULL,
    record      TEXT NOT NULL
);
CREATE UNIQUE INDEX outbox_by_id ON outbox (destination, id);
CREATE INDEX outbox_in_order ON outbox (destination, seq);

-- The consumable resources that a job names, each between blanks.
ALTER TABLE jobs ADD COLUMN consumables TEXT COLLATE "C";
