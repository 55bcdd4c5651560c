-- A job, a service job and a schedule know the key that asked for them; earlier records know its tenant alone.
UPDATE jobs SET submission = jsonb_set(submission::jsonb, '{submitter}', jsonb_build_object('tenant', submission::jsonb -> 'tenant'))::text
WHERE submission IS NOT NULL AND submission::jsonb ->> 'tenant' <> 'default';
UPDATE service_jobs SET record = jsonb_set(record::jsonb, '{submitter}', jsonb_build_object('tenant', record::jsonb -> 'tenant'))::text
WHERE record::jsonb ->> 'tenant' <> 'default';
UPDATE declarations SET record = jsonb_set(record::jsonb, '{submitter}', jsonb_build_object('tenant', record::jsonb -> 'tenant'))::text
WHERE kind = 'schedule' AND record::jsonb ->> 'tenant' <> 'default';
