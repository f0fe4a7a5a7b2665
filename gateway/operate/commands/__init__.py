"""The commands of people who operate on records: straight on Postgres and Redis, whether or not a gateway runs."""
