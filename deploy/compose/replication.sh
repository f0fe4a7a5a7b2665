# Sourced once by the image's entry point, when the primary's data folder is made: it takes a standby, and from its next start waits for it.
echo "host replication $POSTGRES_USER all scram-sha-256" >> "$PGDATA/pg_hba.conf"
psql --quiet --username="$POSTGRES_USER" --dbname="$POSTGRES_DB" --command="ALTER SYSTEM SET synchronous_standby_names = 'standby'"
