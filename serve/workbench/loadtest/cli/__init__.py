"""`servegate load`: what its commands are made of."""
