"""``penstock offset ...``"""
