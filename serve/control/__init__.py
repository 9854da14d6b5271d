"""The control plane: what people want, what the replicas hold, and the snapshot made of both."""
