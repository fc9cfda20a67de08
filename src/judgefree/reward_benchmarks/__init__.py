"""Benchmarks that judge a reward model: loaders, scoring rules, rulers, reports. docs/reward-benchmarks.md says more."""
