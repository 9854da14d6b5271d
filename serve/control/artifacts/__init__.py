"""The storage of published versions: blobs by digest and manifests, on a disk or in a bucket."""
