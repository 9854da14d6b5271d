"""TensorFlow Serving's prediction API, over both protocols."""
