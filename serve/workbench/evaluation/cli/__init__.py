"""`servegate eval`: versions held against labelled datasets, by the gateway itself."""
