-- Who leads is a question among daemons that share a PostgreSQL server; a SQLite file has one daemon.
SELECT 1;
