"""A small payments API to try the gateway on. It deduplicates nothing unless told to: what reaches it twice is booked twice, and shows.

    python -m gateway.devtools.sample --port 8000

`GET /` describes its operations and the request headers that make it slow, late, untrue or make it fail.
"""
