"""The admin API: what operators, the CLI and the web UI ask of the control plane."""
