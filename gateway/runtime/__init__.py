"""What a process needs of its machine: clock, randomness, memory and files for bodies, alarms, sealing."""
