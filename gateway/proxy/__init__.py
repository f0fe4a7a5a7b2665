"""One request from its head to its answer: the client's connection in front, the engine or a plain hop behind."""
