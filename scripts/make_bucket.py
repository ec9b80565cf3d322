"""Make the bucket that SPO_WAREHOUSE names, unless it is there. Does nothing for a warehouse in a folder."""

from __future__ import annotations

import os

from pyarrow import fs

from warehouse.location import parse_location

location = parse_location(None)
if location.remote:
    scheme, _, host = os.environ.get("AWS_ENDPOINT_URL", "").rpartition("://")
    store = fs.S3FileSystem(
        endpoint_override=host or None,
        scheme=scheme or "https",
        region=os.environ.get("AWS_REGION", "us-east-1"),
        allow_bucket_creation=True,
    )
    bucket = location.data.removeprefix("s3://").split("/")[0]
    store.create_dir(bucket)
    print(f"bucket {bucket} is there")
