"""Tries: versions of a model called once by people, and kept so that everybody can look at them."""
