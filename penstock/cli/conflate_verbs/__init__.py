"""``penstock conflate ...``"""
