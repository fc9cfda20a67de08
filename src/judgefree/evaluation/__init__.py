"""What a model is worth: benchmark suites, and all models side by side with intervals."""
