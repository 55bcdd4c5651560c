-- Each tenant has its own names. What is of another tenant than `default` is kept under `<tenant>/<name>`, and a log group
-- under `<tenant>:<group>`; the queue of a job says its tenant too, so that the indexes over queues serve one tenant.
UPDATE jobs SET queue = (submission::jsonb #>> '{submitter,tenant}') || '/' || queue
WHERE parent IS NULL AND COALESCE(submission::jsonb #>> '{submitter,tenant}', 'default') <> 'default';
DELETE FROM finished_counts;
INSERT INTO finished_counts (queue, state, number)
SELECT queue, state, COUNT(*) FROM jobs WHERE parent IS NULL AND state IN ('SUCCEEDED', 'FAILED') GROUP BY queue, state;

UPDATE service_jobs SET queue = (record::jsonb #>> '{submitter,tenant}') || '/' || queue
WHERE COALESCE(record::jsonb #>> '{submitter,tenant}', 'default') <> 'default';

UPDATE log_streams SET log_group = owners.tenant || ':' || log_group
FROM (
    SELECT j.id, COALESCE(j.submission, p.submission)::jsonb #>> '{submitter,tenant}' AS tenant
    FROM jobs j LEFT JOIN jobs p ON p.id = j.parent
) AS owners
WHERE owners.id = log_streams.job_id AND COALESCE(owners.tenant, 'default') <> 'default';

-- A schedule's group goes with it: groups of earlier versions have no tenant, so that one is made for each that needs it.
INSERT INTO declarations (kind, name, record)
SELECT DISTINCT 'schedule-group', tenant || '/' || it.grp,
    jsonb_set(g.record::jsonb, '{name}', to_jsonb(tenant || '/' || it.grp))::text
FROM (
    SELECT record::jsonb #>> '{submitter,tenant}' AS tenant, record::jsonb ->> 'group' AS grp
    FROM declarations WHERE kind = 'schedule'
) AS it JOIN declarations g ON g.kind = 'schedule-group' AND g.name = it.grp
WHERE COALESCE(tenant, 'default') <> 'default';
UPDATE ticks SET
    record = jsonb_set(ticks.record::jsonb, '{schedule}', to_jsonb(owners.tenant || '/' || ticks.schedule))::text,
    schedule = owners.tenant || '/' || ticks.schedule
FROM (
    SELECT name, record::jsonb #>> '{submitter,tenant}' AS tenant FROM declarations WHERE kind = 'schedule'
) AS owners
WHERE owners.name = ticks.schedule AND COALESCE(owners.tenant, 'default') <> 'default';
UPDATE declarations SET
    name = (record::jsonb #>> '{submitter,tenant}') || '/' || name,
    record = jsonb_set(
        record::jsonb, '{group}', to_jsonb((record::jsonb #>> '{submitter,tenant}') || '/' || (record::jsonb ->> 'group'))
    )::text
WHERE kind = 'schedule' AND COALESCE(record::jsonb #>> '{submitter,tenant}', 'default') <> 'default';

-- A follower's command says on whose behalf it is done; NULL sees all tenants.
ALTER TABLE inbox ADD COLUMN tenant TEXT;
