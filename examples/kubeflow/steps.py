"""The steps behind the training, the same for every model that classifies pictures.

kfp takes the source of each function into the pipeline's YAML. So a function imports what it needs
within itself, and what it shares with others (`shared.py`, `gating.py`) is put before it by
`components.py`: `say`, `servegate`, `decide` and the rest are known here at run time only.
"""

# ruff: noqa: F821

from typing import NamedTuple

from kfp.dsl import HTML, ClassificationMetrics, Dataset, Input, Markdown, Metrics, Model, Output


def evaluate(
    trained: Input[Model],
    held_out: Input[Dataset],
    golden: Output[Dataset],
    measured: Output[Metrics],
    confusion: Output[ClassificationMetrics],
) -> NamedTuple("Counted", [("right", int), ("rows", int)]):
    """Ask the trained model the held-out rows; the surest right answers become golden cases."""
    from pathlib import Path

    import numpy as np
    import tensorflow as tf

    with np.load(held_out.path) as part:
        x, labels, classes = tensors(part["pictures"]), part["labels"], part["classes"]
    ask = tf.saved_model.load(trained.path).signatures["serving_default"]
    batches = [
        ask(x=tf.constant(x[start : start + 256]))["probabilities"]
        for start in range(0, len(x), 256)
    ]
    scores = np.concatenate([batch.numpy() for batch in batches])
    told = scores.argmax(axis=1)
    right = int((told == labels).sum())
    matrix = np.zeros((len(classes), len(classes)), dtype=int)
    np.add.at(matrix, (labels, told), 1)
    confusion.log_confusion_matrix(classes.tolist(), matrix.tolist())
    measured.log_metric("held_out_rows", len(x))
    measured.log_metric("held_out_accuracy", right / len(x))
    sure = np.argsort(np.where(told == labels, -scores.max(axis=1), 1.0), kind="stable")
    sure = sure[: min(16, max(right, 1))]
    with Path(golden.path).open("wb") as file:
        np.savez(file, **{"input/x": x[sure], "output/probabilities": scores[sure]})
    say(f"{right} of {len(x)} held-out rows right ({right / len(x):.2%})")
    return (right, len(x))


def gate(
    model: str,
    label: str,
    held_out: Input[Dataset],
    right: int,
    rows: int,
    minimum: float,
    allowed_drop: float,
    admin_url: str,
    compared: Output[Metrics],
    verdict: Output[Markdown],
) -> bool:
    """Hold the trained model against the version that has the label, on the same rows.

    That version is asked through the gateway, now: what was once written of it is not believed.
    """
    from pathlib import Path

    standing, standing_right, standing_rows = standing_version(model, label, admin_url), 0, 0
    if standing:
        found = run_evaluation(model, held_out.path, ("-a", label), ("failed(a)<=0",), admin_url)
        standing_right = found["report"]["buckets"].get("right", 0)
        standing_rows = found["report"]["rows"]
        compared.log_metric("labelled_version", standing)
        compared.log_metric("labelled_accuracy", standing_right / standing_rows)
    passed, why = decide(right, rows, standing_right, standing_rows, minimum, allowed_drop)
    compared.log_metric("trained_accuracy", right / rows)
    Path(verdict.path).write_text(why + "\n")
    say(f"{'passed' if passed else 'gated'}: {why}")
    return passed


def convert(
    model: str,
    trained: Input[Model],
    train: Input[Dataset],
    held_out: Input[Dataset],
    entry: Output[Model],
    report: Output[HTML],
):
    """Make ONNX of the SavedModel, held against it; and record how pictures become tensors."""
    import json
    import shutil
    import tempfile
    from pathlib import Path

    import numpy as np
    from google.protobuf import text_format
    from tritonclient.grpc import model_config_pb2

    with np.load(train.path) as part:
        samples, classes = part["pictures"][:256], part["classes"]
    with tempfile.TemporaryDirectory() as folder:
        rows, labelled, skew = (f"{folder}/{name}.npz" for name in ("rows", "labelled", "skew"))
        with np.load(held_out.path) as part:
            np.savez(labelled, x=tensors(part["pictures"]), labels=part["labels"])
        np.savez(rows, x=tensors(samples[:64]))
        np.savez(skew, **{"raw/x": samples, "tensor/x": tensors(samples)})
        recorded = Path(folder, "preprocessing.json")
        recorded.write_text(json.dumps(preprocessing(samples), indent=2) + "\n")
        servegate("model", "skew", "--preprocessing", str(recorded), "--samples", skew)
        words = ["--samples", rows, "--labelled", labelled, "--max-batch-size", "64", "--json"]
        servegate("convert", "onnx", trained.path, "--name", model, "--out", entry.path, *words)
        shutil.copy(recorded, Path(entry.path, model))
    config = Path(entry.path, model, "config.pbtxt")
    message = text_format.Parse(config.read_text(), model_config_pb2.ModelConfig())
    message.output[0].label_filename = "labels.txt"
    config.write_text(text_format.MessageToString(message))
    config.with_name("labels.txt").write_text("\n".join(classes) + "\n")
    shutil.copy(config.with_name("conversion.html"), report.path)
    say("the ONNX file answers as the SavedModel; its preprocessing is the training's, bit for bit")


def push(
    model: str,
    entry: Input[Model],
    golden: Input[Dataset],
    run: str,
    admin_url: str,
) -> int:
    """Publish a version, with the golden cases as its contract; it is ready when this returns."""
    import json
    import shutil
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        cases = shutil.copy(golden.path, f"{folder}/held-out.npz")
        contract = ["--golden", cases, "--golden-top1", "1"]
        told = ["--tag", f"kubeflow-run={run}", "--reason", f"Kubeflow run {run}", "--json"]
        words = ["model", "push", f"{entry.path}/{model}", model, *contract, "--wait", *told]
        _, said = servegate(*words, admin_url=admin_url)
    version = json.loads(said.splitlines()[-1])["version"]
    say(f"version {version} of {model} is ready")
    return version


def verify(
    model: str,
    label: str,
    version: int,
    held_out: Input[Dataset],
    right: int,
    minimum: float,
    allowed_drop: float,
    admin_url: str,
    data_url: str,
    grpc_url: str,
    measured: Output[Metrics],
    confusion: Output[ClassificationMetrics],
) -> str:
    """Ask the new version as callers will, beside the labelled one; the evaluation's id."""
    import json
    import os
    import tempfile

    import numpy as np
    from PIL import Image

    os.environ |= {"SERVEGATE_URL": data_url, "SERVEGATE_GRPC_URL": grpc_url}
    with np.load(held_out.path) as part, tempfile.TemporaryDirectory() as folder:
        Image.fromarray(part["pictures"][0]).save(f"{folder}/row.png")
        for protocol in ((), ("--grpc",)):
            words = ["infer", f"{model}@{version}", "--input", f"x=@{folder}/row.png", "--json"]
            answer = json.loads(servegate(*words, *protocol, admin_url=admin_url)[1])
            if answer["version"] != version:
                raise SystemExit(f"- version {answer['version']} answered in place of {version}")
    standing = standing_version(model, label, admin_url)
    alone = standing in (0, version)
    side = "a" if alone else "b"
    sides = ("-a", str(version)) if alone else ("-a", label, "-b", str(version))
    gates = [f"accuracy({side})>={minimum:.6f}", f"failed({side})<=0"]
    gates += [] if alone else [f"drop<={allowed_drop:.6f}"]
    found = run_evaluation(model, held_out.path, sides, tuple(gates), admin_url)
    page = found["report"]
    accuracy = page[side]["accuracy"]["value"]
    if abs(accuracy * page["rows"] - right) > 0.005 * page["rows"]:
        raise SystemExit(f"- {accuracy:.2%} right as served, {right} of {page['rows']} as trained")
    measured.log_metric("served_accuracy", accuracy)
    measured.log_metric("served_p50_milliseconds", page[side]["latency"]["p50"])
    confusion.log_confusion_matrix(page["confusion"]["labels"], page["confusion"][side])
    say(f"{accuracy:.2%} right as served, over HTTP; gRPC answers, too")
    return found["id"]


def promote(
    model: str, label: str, version: int, verdict: Input[Markdown], verified: str, admin_url: str
) -> str:
    """Let the label name the new version; callers of the label get it when this returns."""
    from pathlib import Path

    reason = f"evaluation {verified}: {Path(verdict.path).read_text().strip()}"
    servegate("label", "set", model, label, str(version), "--reason", reason, admin_url=admin_url)
    say(f"{model}:{label} is version {version}")
    return f"{model}:{label} is version {version}"


def link(
    model: str,
    promoted: str,
    verified: str,
    admin_url: str,
    pages_url: str,
    links: Output[Markdown],
) -> NamedTuple("Links", [("page", str), ("report", str)]):
    """Where people look at it: the model's page and the evaluation's report; both must answer."""
    from pathlib import Path
    from urllib.request import urlopen

    paths = (f"/models/{model}", f"/evaluations/{verified}")
    for path in paths:
        with urlopen(admin_url.rstrip("/") + path, timeout=30) as answer:
            answer.read()
    page, report = ((pages_url or admin_url).rstrip("/") + path for path in paths)
    text = f"{promoted}: [the model]({page}), [its evaluation]({report})\n"
    Path(links.path).write_text(text)
    say(report)
    return (page, report)
