"""Data files: tables and locks that the code reads, never code."""
