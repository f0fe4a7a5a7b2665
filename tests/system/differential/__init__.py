"""The gateway against other servers: what they route to a guarded operation, the gateway must have guarded or refused."""
