"""Processes: one server, and the supervisor of several."""
