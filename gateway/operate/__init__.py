"""What operators do to records: the rules, the admin API, the commands."""
