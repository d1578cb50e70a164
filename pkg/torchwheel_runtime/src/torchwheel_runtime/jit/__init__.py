"""The cache of libraries that are built just in time."""
