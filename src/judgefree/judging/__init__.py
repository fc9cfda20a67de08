"""Judges of texts, and what is made of their verdicts."""
