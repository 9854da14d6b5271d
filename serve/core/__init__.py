"""The nouns: frozen values and the error tree. Standard library only, no input or output."""
