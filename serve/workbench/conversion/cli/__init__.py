"""`servegate convert`, and what `model push --convert` adds to a push."""
