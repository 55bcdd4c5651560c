-- How many finished top-level jobs were created in each five minutes, so that no histogram counts a million rows. Kept by
-- triggers, like finished_counts.
CREATE TABLE submission_counts (
    queue  TEXT NOT NULL,
    state  TEXT NOT NULL,
    slot   INTEGER NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (queue, state, slot)
) WITHOUT ROWID;
INSERT INTO submission_counts (queue, state, slot, number)
SELECT queue, state, created_at / 300000, COUNT(*) FROM jobs
WHERE queue IS NOT NULL AND parent IS NULL AND state IN ('SUCCEEDED', 'FAILED')
GROUP BY queue, state, created_at / 300000;

CREATE TRIGGER submission_inserted AFTER INSERT ON jobs
WHEN NEW.parent IS NULL AND NEW.state IN ('SUCCEEDED', 'FAILED')
BEGIN
    INSERT INTO submission_counts (queue, state, slot, number) VALUES (NEW.queue, NEW.state, NEW.created_at / 300000, 1)
    ON CONFLICT (queue, state, slot) DO UPDATE SET number = number + 1;
END;

CREATE TRIGGER submission_updated AFTER UPDATE OF state ON jobs
WHEN NEW.parent IS NULL AND NEW.state <> OLD.state
    AND (NEW.state IN ('SUCCEEDED', 'FAILED') OR OLD.state IN ('SUCCEEDED', 'FAILED'))
BEGIN
    UPDATE submission_counts SET number = number - 1
    WHERE queue = OLD.queue AND state = OLD.state AND slot = OLD.created_at / 300000;
    INSERT INTO submission_counts (queue, state, slot, number)
    SELECT NEW.queue, NEW.state, NEW.created_at / 300000, 1 WHERE NEW.state IN ('SUCCEEDED', 'FAILED')
    ON CONFLICT (queue, state, slot) DO UPDATE SET number = number + 1;
END;

CREATE TRIGGER submission_deleted AFTER DELETE ON jobs
WHEN OLD.parent IS NULL AND OLD.state IN ('SUCCEEDED', 'FAILED')
BEGIN
    UPDATE submission_counts SET number = number - 1
    WHERE queue = OLD.queue AND state = OLD.state AND slot = OLD.created_at / 300000;
    DELETE FROM submission_counts
    WHERE queue = OLD.queue AND state = OLD.state AND slot = OLD.created_at / 300000 AND number <= 0;
END;
