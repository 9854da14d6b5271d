"""The ways in: each listener parses its protocol and hands calls to a plane."""
