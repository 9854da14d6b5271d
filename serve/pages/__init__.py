"""Pages that need nothing else: one file, no script, everything escaped by those who fill them."""
