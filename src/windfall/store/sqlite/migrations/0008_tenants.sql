-- Each tenant has its own names. What is of another tenant than `default` is kept under `<tenant>/<name>`, and a log group
-- under `<tenant>:<group>`; the queue of a job says its tenant too, so that the indexes over queues serve one tenant.
UPDATE jobs SET queue = json_extract(submission, '$.submitter.tenant') || '/' || queue
WHERE parent IS NULL AND COALESCE(json_extract(submission, '$.submitter.tenant'), 'default') <> 'default';
DELETE FROM finished_counts;
INSERT INTO finished_counts (queue, state, number)
SELECT queue, state, COUNT(*) FROM jobs WHERE parent IS NULL AND state IN ('SUCCEEDED', 'FAILED') GROUP BY queue, state;

UPDATE service_jobs SET queue = json_extract(record, '$.submitter.tenant') || '/' || queue
WHERE COALESCE(json_extract(record, '$.submitter.tenant'), 'default') <> 'default';

UPDATE log_streams SET log_group = (
    SELECT json_extract(COALESCE(j.submission, p.submission), '$.submitter.tenant')
    FROM jobs j LEFT JOIN jobs p ON p.id = j.parent WHERE j.id = log_streams.job_id
) || ':' || log_group
WHERE job_id IN (
    SELECT j.id FROM jobs j LEFT JOIN jobs p ON p.id = j.parent
    WHERE COALESCE(json_extract(COALESCE(j.submission, p.submission), '$.submitter.tenant'), 'default') <> 'default'
);

-- A schedule's group goes with it: groups of earlier versions have no tenant, so that one is made for each that needs it.
INSERT INTO declarations (kind, name, record)
SELECT DISTINCT 'schedule-group', tenant || '/' || it.grp, json_set(g.record, '$.name', tenant || '/' || it.grp)
FROM (
    SELECT json_extract(record, '$.submitter.tenant') AS tenant, json_extract(record, '$.group') AS grp
    FROM declarations WHERE kind = 'schedule'
) AS it JOIN declarations g ON g.kind = 'schedule-group' AND g.name = it.grp
WHERE COALESCE(tenant, 'default') <> 'default';
UPDATE ticks SET
    record = json_set(record, '$.schedule', (
        SELECT json_extract(d.record, '$.submitter.tenant') FROM declarations d
        WHERE d.kind = 'schedule' AND d.name = ticks.schedule
    ) || '/' || schedule),
    schedule = (
        SELECT json_extract(d.record, '$.submitter.tenant') FROM declarations d
        WHERE d.kind = 'schedule' AND d.name = ticks.schedule
    ) || '/' || schedule
WHERE schedule IN (
    SELECT name FROM declarations
    WHERE kind = 'schedule' AND COALESCE(json_extract(record, '$.submitter.tenant'), 'default') <> 'default'
);
UPDATE declarations SET
    name = json_extract(record, '$.submitter.tenant') || '/' || name,
    record = json_set(record, '$.group', json_extract(record, '$.submitter.tenant') || '/' || json_extract(record, '$.group'))
WHERE kind = 'schedule' AND COALESCE(json_extract(record, '$.submitter.tenant'), 'default') <> 'default';
