"""Destination ``bigquery``: typed tables in Google BigQuery, each batch exactly once."""

from penstock.registry import built_in

component = built_in(__name__, "Typed tables in Google BigQuery, loaded from Parquet, exactly once.")
