"""``penstock sample ...``"""
