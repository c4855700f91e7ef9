"""SQL expressions over JSON records, in Spark's dialect, for the steps that take one.

``parse`` turns the text into a small tree and refuses what is not supported; ``evaluate`` computes a tree over a whole
batch; ``columns`` is how values of mixed types are held; ``functions`` are the operators and functions themselves, and
``arithmetic`` those that compute numbers.
Importing this package imports nothing.
"""
