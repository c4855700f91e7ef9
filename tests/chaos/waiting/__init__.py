"""Kills Penstock in every way while steps of its routes remember keys and keep records back, and checks every event."""
