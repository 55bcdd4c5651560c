-- A job, a service job and a schedule know the key that asked for them; earlier records know its tenant alone.
UPDATE jobs SET submission = json_set(submission, '$.submitter', json_object('tenant', json_extract(submission, '$.tenant')))
WHERE submission IS NOT NULL AND json_extract(submission, '$.tenant') <> 'default';
UPDATE service_jobs SET record = json_set(record, '$.submitter', json_object('tenant', json_extract(record, '$.tenant')))
WHERE json_extract(record, '$.tenant') <> 'default';
UPDATE declarations SET record = json_set(record, '$.submitter', json_object('tenant', json_extract(record, '$.tenant')))
WHERE kind = 'schedule' AND json_extract(record, '$.tenant') <> 'default';
