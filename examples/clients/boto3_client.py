#!/usr/bin/env python3
"""boto3: a handler of before-sign sets the header on every request (parts, completion and batches too), and the signature covers it.

    boto3_client.py upload FILE BUCKET/KEY | download BUCKET/KEY FILE | copy BUCKET/KEY BUCKET/KEY | delete BUCKET/KEY
    boto3_client.py metadata BUCKET/KEY              what the object's x-amz-meta-* say
    boto3_client.py presign header|query BUCKET/KEY  a URL for one PUT with this token, to be handed on
"""
import os
import sys

import boto3
from botocore.config import Config

TOKEN = os.environ["TOKEN"]


def add_token(request, **kwargs):
    del request.headers["Fencing-Token"]  # assignment alone would add a second line
    request.headers["Fencing-Token"] = TOKEN


def client(handler=add_token):
    s3 = boto3.client(
        "s3",
        endpoint_url=os.environ.get("PROXY", "http://127.0.0.1:8080"),
        region_name="us-east-1",
        config=Config(signature_version="s3v4"),
    )
    s3.meta.events.register("before-sign.s3", handler)
    return s3


def add_token_to_query(request, **kwargs):
    request.url += ("&" if "?" in request.url else "?") + "fencing-token=" + TOKEN


def presign(place, bucket, key):
    # header: whoever uses the URL has to send Fencing-Token with this very value. query: the URL alone is enough.
    # Both are signed. A URL that covers no token could be used with any: require_signed_token refuses it.
    handler = {"header": add_token, "query": add_token_to_query}[place]
    return client(handler).generate_presigned_url("put_object", {"Bucket": bucket, "Key": key}, ExpiresIn=900)


def main(command, *args):
    split = lambda path: path.split("/", 1)
    if command == "upload":
        client().upload_file(args[0], *split(args[1]), ExtraArgs={"Metadata": {"owner": "driver-a"}})
    elif command == "download":
        client().download_file(*split(args[0]), args[1])
    elif command == "copy":
        source, (bucket, key) = split(args[0]), split(args[1])
        client().copy_object(Bucket=bucket, Key=key, CopySource={"Bucket": source[0], "Key": source[1]})
    elif command == "delete":
        bucket, key = split(args[0])
        client().delete_object(Bucket=bucket, Key=key)
    elif command == "metadata":
        bucket, key = split(args[0])
        print(client().head_object(Bucket=bucket, Key=key)["Metadata"])
    elif command == "presign":
        print(presign(args[0], *split(args[1])))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Exception as e:  # the message of the proxy is in it
        sys.exit("boto3: %s" % e)
