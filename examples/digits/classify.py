"""Asks the model `digits` which digit a picture shows, as an application would.

Needs `pip install 'tritonclient[http]' numpy pillow`.
"""

import argparse
from pathlib import Path

import numpy as np
import tritonclient.http as triton
from PIL import Image

parser = argparse.ArgumentParser(description="Classify a picture of a digit.")
parser.add_argument("picture", nargs="?", default=Path(__file__).with_name("seven.png"))
parser.add_argument("--url", default="localhost:8000", help="host:port of the gateway")
parser.add_argument("--version", default="", help="a version number (default: the server chooses)")
chosen = parser.parse_args()

# The model reads 8x8 grey pictures as numbers from 0 to 1, with shape [batch, 8, 8, 1].
picture = Image.open(chosen.picture).convert("L").resize((8, 8), Image.Resampling.BOX)
pixels = np.asarray(picture).astype(np.float32) * np.float32(1 / 255)
x = triton.InferInput("x", [1, 8, 8, 1], "FP32")
x.set_data_from_numpy(pixels.reshape(1, 8, 8, 1))

with triton.InferenceServerClient(chosen.url) as client:
    result = client.infer("digits", [x], model_version=chosen.version)

probabilities = result.as_numpy("probabilities")[0]
digit = int(probabilities.argmax())
answered_by = result.get_response()["model_version"]
print(f"digit {digit}, probability {probabilities[digit]:.3f}, from version {answered_by}")
