"""TensorRT plans: profiles of shapes, how a plan is built here or on the spot, what it then is."""
