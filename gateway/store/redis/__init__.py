"""The Redis hot path: a pipelined connection behind a breaker, a binary value format, and the atomic steps on one entry."""
