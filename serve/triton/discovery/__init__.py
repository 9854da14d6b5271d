"""Discovery: which Tritons run, as Kubernetes or the DNS tells it."""
