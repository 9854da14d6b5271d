"""Model_files."""
