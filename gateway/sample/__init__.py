"""A small payments API to try the gateway on. It deduplicates nothing: what reaches it twice is booked twice, and shows.

    python -m gateway.sample --port 8000

`GET /` describes its operations and the request headers that make it slow or make it fail.
"""
