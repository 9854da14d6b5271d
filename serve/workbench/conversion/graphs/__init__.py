"""ONNX graphs: finished, run, changed in precision, looked into. Only for child processes."""
