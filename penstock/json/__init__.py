"""JSON as bytes: scanners compiled with numba that work on whole Arrow arrays and never build an object.

``tokens`` steps over one value, ``documents`` gives the bytes behind an Arrow array, ``find`` locates wanted paths in
every document, ``leaves`` walks every document once and names each scalar. Importing this package imports nothing;
its modules import numba, so nothing that only reads configs may import them.
"""
