"""What several steps do: the command line of Servegate, and the one rule from pictures to tensors.

kfp takes each function alone into the steps that use it, so each imports what it needs.
"""


def say(text: str) -> None:
    """A line for people among everything that a step prints."""
    print(f"- {text}", flush=True)


def servegate(*words: str, admin_url: str = "", allowed: tuple = ()) -> tuple:
    """Run a command of Servegate: its exit status, and what it printed as data.

    Any other status than 0 and those in `allowed` ends the step with the command's own reason.
    """
    import json
    import os
    import subprocess

    environment = {**os.environ, **({"SERVEGATE_ADMIN_URL": admin_url} if admin_url else {})}
    done = subprocess.run(
        ["servegate", *words], env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode not in (0, *allowed):
        reasons = []
        for line in done.stdout.splitlines():
            if line.startswith('{"type": "result"'):
                event = json.loads(line)
                told = [event.get("what"), event.get("why"), *event.get("findings", [])]
                reasons += [each for each in told if each]
        command = " ".join(words)
        raise SystemExit(f"- servegate {command}: status {done.returncode}. {': '.join(reasons)}")
    return done.returncode, done.stdout


def tensors(pictures):
    """Pictures as the model's input: uint8 [n, h, w] or [n, h, w, 3] become float32, 0 to 1."""
    import numpy as np

    rows = pictures if pictures.ndim == 4 else pictures[..., np.newaxis]
    return rows.astype(np.float32) * np.float32(1 / 255)


def preprocessing(pictures) -> dict:
    """The same rule as data, as it is recorded with the version."""
    height, width = pictures.shape[1:3]
    image = {
        "kind": "image",
        "color": "grey" if pictures.ndim == 3 else "rgb",
        "resize": [height, width],
        "resample": "box",
        "scale": [1, 255],
        "layout": "HWC",
        "dtype": "FP32",
    }
    return {"inputs": {"x": image}}


def standing_version(model: str, label: str, admin_url: str) -> int:
    """The version that has the label now; 0 where model or label are not there yet."""
    import json

    no_such_model = 3
    status, said = servegate(
        "label", "ls", model, "--json", admin_url=admin_url, allowed=(no_such_model,)
    )
    return 0 if status == no_such_model else json.loads(said).get(label, 0)


def zip_pictures(held_out: str, bundle: str) -> None:
    """The held-out rows as PNG files, a folder per class; the same rows give the same bytes."""
    import io
    import zipfile

    import numpy as np
    from PIL import Image

    with np.load(held_out) as rows:
        pictures, labels, classes = rows["pictures"], rows["labels"], rows["classes"]
    with zipfile.ZipFile(bundle, "w") as archive:
        for number, (picture, label) in enumerate(zip(pictures, labels, strict=True)):
            file = io.BytesIO()
            Image.fromarray(picture).save(file, format="PNG")
            name = zipfile.ZipInfo(f"{classes[label]}/{number:05}.png")
            archive.writestr(name, file.getvalue())


def run_evaluation(model: str, held_out: str, sides: tuple, gates: tuple, admin_url: str) -> dict:
    """Evaluate versions on the held-out pictures, through the gateway; the finished evaluation.

    `sides` are words such as `-a stable -b 3`. A gate that is not met ends the step.
    """
    import json
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        bundle = f"{folder}/{model}-held-out.zip"
        zip_pictures(held_out, bundle)
        words = ["eval", "run", model, "--dataset", bundle, *sides, "--batch", "16", "--json"]
        for gate in gates:
            words += ["--gate", gate]
        _, said = servegate(*words, admin_url=admin_url)
    return json.loads(said.splitlines()[-1])["evaluation"]
