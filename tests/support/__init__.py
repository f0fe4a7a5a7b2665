"""What tests share: servers, builders, faults."""
