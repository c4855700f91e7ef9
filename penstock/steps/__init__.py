"""The steps that come with Penstock: a folder each, the contract in ``contract.py``."""
