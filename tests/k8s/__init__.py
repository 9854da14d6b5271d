"""Tests of the manifests in k8s/, which `make test-k8s` runs: they need kubectl and .venv-k8s."""
