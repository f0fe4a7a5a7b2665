"""The store of reference, in memory: what the contract suite and the simulation compare others with."""
