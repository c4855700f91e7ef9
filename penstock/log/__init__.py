"""The durable log: partitions of segments of frames, their readers and writers, and the Spark source over them."""
