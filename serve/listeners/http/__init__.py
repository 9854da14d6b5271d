"""KServe v2 over HTTP/1.1: connections of clients, and what they ask."""
