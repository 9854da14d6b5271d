"""KServe v2 over gRPC, in HTTP/2 frames, and further services on the same port."""
