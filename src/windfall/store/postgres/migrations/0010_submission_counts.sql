-- How many finished top-level jobs were created in each five minutes, so that no histogram counts a million rows. Kept by
-- triggers, like finished_counts.
CREATE TABLE submission_counts (
    queue  TEXT COLLATE "C" NOT NULL,
    state  TEXT COLLATE "C" NOT NULL,
    slot   BIGINT NOT NULL,
    number BIGINT NOT NULL,
    PRIMARY KEY (queue, state, slot)
);
INSERT INTO submission_counts (queue, state, slot, number)
SELECT queue, state, created_at / 300000, COUNT(*) FROM jobs
WHERE queue IS NOT NULL AND parent IS NULL AND state IN ('SUCCEEDED', 'FAILED')
GROUP BY queue, state, created_at / 300000;

CREATE FUNCTION count_submissions_inserted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO submission_counts (queue, state, slot, number)
    SELECT queue, state, created_at / 300000, COUNT(*) FROM new_rows
    WHERE parent IS NULL AND state IN ('SUCCEEDED', 'FAILED')
    GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
    ON CONFLICT (queue, state, slot) DO UPDATE SET number = submission_counts.number + excluded.number;
    RETURN NULL;
END $$;

CREATE FUNCTION count_submissions_updated() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO submission_counts (queue, state, slot, number)
    SELECT queue, state, slot, SUM(change) FROM (
        SELECT queue, state, created_at / 300000 AS slot, 1 AS change FROM new_rows
        WHERE parent IS NULL AND state IN ('SUCCEEDED', 'FAILED')
        UNION ALL
        SELECT queue, state, created_at / 300000, -1 FROM old_rows
        WHERE parent IS NULL AND state IN ('SUCCEEDED', 'FAILED')
    ) AS changes
    GROUP BY queue, state, slot HAVING SUM(change) <> 0 ORDER BY queue, state, slot
    ON CONFLICT (queue, state, slot) DO UPDATE SET number = submission_counts.number + excluded.number;
    RETURN NULL;
END $$;

CREATE FUNCTION count_submissions_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE submission_counts SET number = submission_counts.number - gone.number
    FROM (
        SELECT queue, state, created_at / 300000 AS slot, COUNT(*) AS number FROM old_rows
        WHERE parent IS NULL AND state IN ('SUCCEEDED', 'FAILED') GROUP BY 1, 2, 3
    ) AS gone
    WHERE submission_counts.queue = gone.queue AND submission_counts.state = gone.state
        AND submission_counts.slot = gone.slot;
    DELETE FROM submission_counts USING old_rows
    WHERE submission_counts.queue = old_rows.queue AND submission_counts.state = old_rows.state
        AND submission_counts.slot = old_rows.created_at / 300000 AND number <= 0;
    RETURN NULL;
END $$;

CREATE TRIGGER submission_inserted AFTER INSERT ON jobs
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION count_submissions_inserted();
CREATE TRIGGER submission_updated AFTER UPDATE ON jobs
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION count_submissions_updated();
CREATE TRIGGER submission_deleted AFTER DELETE ON jobs
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION count_submissions_deleted();
