-- Only daemons that share a PostgreSQL server share values; those of a SQLite file are in its data directory.
SELECT 1;
