"""Kills Penstock in every way while a client posts, and checks that each acknowledged event arrives exactly once."""
