"""Plugin for aws cli 2: sends $TOKEN as the header Fencing-Token with every S3 request, signed."""
import os


def awscli_initialize(cli):
    cli.register("before-sign.s3", add_token)


def add_token(request, **kwargs):
    del request.headers["Fencing-Token"]  # assignment alone would add a second line
    request.headers["Fencing-Token"] = os.environ["TOKEN"]
