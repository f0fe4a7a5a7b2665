"""Processes: one server, the supervisor of several, and how it runs each of them."""
