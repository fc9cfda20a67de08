"""The trainer: turns in, checkpoints out. `trainer.py` is the only file that knows TRL's inside."""
