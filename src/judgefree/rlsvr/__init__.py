"""RLSVR: environments that verify themselves, and what the spy game, the first of them, is made of."""
