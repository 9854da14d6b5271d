"""Conversions: sources that were uploaded become versions, as jobs of the control plane."""
