-- The share of a fair-share queue, or the quota share, that a job was submitted under; none for most jobs.
ALTER TABLE jobs ADD COLUMN share TEXT;
CREATE INDEX jobs_by_share ON jobs (queue, share, state, created_at, seq) WHERE share IS NOT NULL;
