"""A fake Kubernetes API server, written by us: what such a server does, without a cluster behind.

It keeps objects and tells of their changes, over real sockets, to the real `kubectl` and to our own
discovery: create, read, replace, patch, delete; lists by pages; watches from a version on, with
bookmarks; 409 for a stale version, 410 for one that is forgotten, 422 for a field that may not
change. Nothing is scheduled, no controller runs, nothing is defaulted, fields are not validated,
and there is no server-side apply.

    async with FakeApi() as api:
        api.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {…}})
        … api.url …

`python -m fake_kubernetes --port 8001` (with `tests` on the path) runs one for people and benches.
"""

from fake_kubernetes.server import Asked, FakeApi

__all__ = ["Asked", "FakeApi"]
