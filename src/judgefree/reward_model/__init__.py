"""Reward models: what scores a conversation."""
