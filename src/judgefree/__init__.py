"""judgefree: language models that improve themselves, without a paid judge and without new human labels."""
