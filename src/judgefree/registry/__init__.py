"""What MLflow shows and keeps: runs side by side, the best model of each task, and how it became that."""
