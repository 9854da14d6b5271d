"""The control plane's listeners: the admin API, the web UI, and KEDA's external scaler."""
