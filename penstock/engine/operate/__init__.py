"""What operators do and ask beside a pipeline: offsets, status, schemas, doctor. Nothing here needs Spark."""
