"""What a text is worth: answers of maths problems, their grading, and pass@k."""
