"""Data in: read, checked, cleaned of leaks, split and sealed."""
