"""The composition roots: every object is built here, once, one module per kind of process."""
