"""Destination ``redshift``: typed tables in Amazon Redshift, each batch exactly once."""

from penstock.registry import built_in

component = built_in(__name__, "Typed tables in Amazon Redshift, loaded by COPY from S3, exactly once.")
