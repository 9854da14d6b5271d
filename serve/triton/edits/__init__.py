"""Edits of serving configurations: what people say, made into whole fields. Pure."""
