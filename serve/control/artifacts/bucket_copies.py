"""Copying within a bucket: the bytes do not come by here, where the provider can do it alone."""

import obstore

from serve.control.artifacts.bucket import BucketObjects

_LARGEST = 5 << 30  # bytes that S3 copies in one request (CopyObject); more goes through here


class CopyingBucket(BucketObjects):
    """A bucket whose objects can have copies."""

    async def copy(self, source: str, target: str, size: int) -> None:
        """Make another object of the same `size` bytes; what it replaces is gone."""
        if size > _LARGEST:
            pieces = self.read(source)
            with self._telling():
                await obstore.put_async(self._store, target, pieces)
            return
        with self._telling():
            await obstore.copy_async(self._store, source, target)
