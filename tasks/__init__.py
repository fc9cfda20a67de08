"""Prefect tasks, one file a kind of work, and the process handling below them. No mathematics here."""
