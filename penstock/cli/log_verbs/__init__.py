"""``penstock log ...``"""
