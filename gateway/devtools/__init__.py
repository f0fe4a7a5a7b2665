"""For development and tests: databases from wheels, a sample API, and the command `dev`."""
