"""Starting points: from nothing, from a GGUF file in a Python package, from a hub or from a local folder."""
