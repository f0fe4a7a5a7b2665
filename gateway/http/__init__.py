"""The client's side of HTTP/1.1: connections, requests, responses, tunnels, and our own problem documents."""
