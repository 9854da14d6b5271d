"""Uploads: blobs that come in pieces, from clients that come and go."""
