"""The big example's own steps, with pictures of noise in place of the data set, and no GPU."""

import json
import subprocess

import harness
import pytest

pytestmark = pytest.mark.tensorflow

PYTHON = harness.ROOT / ".venv-pipeline" / "bin" / "python"
WALK = harness.ROOT / "tests" / "pipeline" / "cifar10_walk.py"
ROWS = 20  # of each batch


@pytest.fixture(scope="module")
def walked(tmp_path_factory):
    """What came of the walk, and its folder."""
    folder = tmp_path_factory.mktemp("cifar10")
    words = [str(PYTHON), str(WALK), str(folder), str(ROWS)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1]), folder


def test_the_batches_become_parts_and_the_test_batch_is_held_out(walked):
    page, _ = walked
    assert page["metrics"]["counts"] == {
        "train_rows": 90,
        "validation_rows": 10,
        "held_out_rows": 20,
    }


def test_resnet50_itself_is_trained_and_saved(walked):
    page, folder = walked
    assert page["metrics"]["learning"]["parameters"] == 23_608_202  # without its first classifier
    assert page["metrics"]["learning"]["best_epoch"] == 1
    assert (folder / "trained" / "saved_model.pb").is_file()


def test_it_is_measured_on_the_held_out_rows(walked):
    page, _ = walked
    assert 0 <= page["right"] <= page["rows"] == ROWS
    matrix = page["metrics"]["confusion"]["confusionMatrix"]
    assert [each["displayName"] for each in matrix["annotationSpecs"]][:2] == [
        "airplane",
        "automobile",
    ]
    assert sum(sum(row["row"]) for row in matrix["rows"]) == ROWS


def test_an_archive_with_another_digest_is_never_opened(tmp_path):
    archive = tmp_path / "cifar-10.tar.gz"
    archive.write_bytes(b"anything")
    code = (
        "import sys; sys.path.insert(0, 'examples/kubeflow'); import cifar10; "
        f"cifar10.read_batches({str(archive)!r}, cifar10.SHA256)"
    )
    done = subprocess.run(
        [str(PYTHON), "-c", code], cwd=harness.ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert "is not the archive: its SHA-256 is" in done.stderr
