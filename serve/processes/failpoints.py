"""Failpoints: named places at which a test can have this process die, as by `kill -9`.

A process that is started with `SERVEGATE_FAILPOINT=name` ends at its first `reach(name)`. Every
place has a row here, so that a test can visit all of them; a name without a row cannot be reached.
"""

import os

VARIABLE = "SERVEGATE_FAILPOINT"
STATUS = 86  # the exit status of a process that died at a failpoint
POINTS: dict[str, str] = {
    # uploads: control/uploading/uploads.py and control/artifacts/storage.py
    "upload.begun": "the upload is recorded, before the answer",
    "blob.first": "the first piece of a blob is in its staging file",
    "blob.whole": "all bytes of a blob are staged, before its digest is checked",
    "blob.checked": "the digest is right, before the blob is stored",
    "blob.stored": "the blob is stored, before the staging file is forgotten",
    # publications: control/publishing/publications.py
    "commit.recorded": "the version has its number, before the answer",
    "check.passed": "lint has passed, before that is recorded",
    "check.recorded": "the version is recorded as checked",
    "quarantine.started": "the throw-away Triton runs",
    "quarantine.passed": "load and contract were right, before anything is written",
    "manifest.written": "the manifest is there, before the version is recorded as published",
    "publish.recorded": "the version is recorded as published",
    "upload.forgotten": "the upload's record is gone",
    # delivery: control/delivering/delivery.py
    "delivery.drafted": "the version's files stand in a draft folder",
    "delivery.renamed": "the version's folder has its name",
    # reconciling: control/reconciling/reconciler.py
    "load.steered": "the replica gets no calls, before the load call",
    "load.done": "the load call has returned, before the contract",
    "load.verified": "the contract was right, before calls are sent there again",
    "label.due": "the version is ready, before its label is moved",
}
_armed = os.environ.get(VARIABLE, "")


def arm(name: str) -> None:
    """Die at this place from now on; for a process that is forked instead of started."""
    global _armed
    _armed = name


def reach(name: str) -> None:
    """Die here if the environment says so."""
    assert name in POINTS, name
    if name == _armed:
        os._exit(STATUS)
