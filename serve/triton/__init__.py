"""All that knows Triton: transports, model control, config.pbtxt, repository layout, launcher."""
