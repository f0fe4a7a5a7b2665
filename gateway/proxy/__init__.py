"""The HTTP edge: aiohttp's server in front, the engine or a plain hop behind."""
