"""Pages that show people what a run wrote and what it was paid for it; plain HTML, made from records alone."""
