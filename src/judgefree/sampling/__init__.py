"""Completions from the policy: one sampler on Transformers, vLLM behind the same call."""
