"""The command line: `servegate …`. Heavy imports wait until a command needs them."""
