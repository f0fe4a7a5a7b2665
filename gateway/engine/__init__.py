"""The engine: carries out what the core decides, over the ports."""
