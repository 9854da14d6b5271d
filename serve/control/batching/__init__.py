"""Serving configurations of versions: shown, changed, measured, watched."""
