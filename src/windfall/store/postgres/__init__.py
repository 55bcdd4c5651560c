"""The shared store: a PostgreSQL server through psycopg, which is an extra and imported only from here."""
