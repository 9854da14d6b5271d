"""The web UI, on the admin port: pages made on the server, over what the admin API tells."""
