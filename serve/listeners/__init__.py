"""The data ports: each listener parses its protocol and passes calls to the gateway."""
