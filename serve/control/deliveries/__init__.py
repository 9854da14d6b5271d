"""From the storage to where the Tritons read."""
