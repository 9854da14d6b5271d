"""Artifact in, artifact out: SavedModel → ONNX → TensorRT, each step in a child process.

The room stands in the layers from the first day, so that nothing below learns to import from above;
its furniture comes with the converter. TensorFlow and ONNX may be imported only here.
"""
