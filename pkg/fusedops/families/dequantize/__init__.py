"""Integer weights with a scale for each group of rows."""
