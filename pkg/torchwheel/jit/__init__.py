"""Libraries built just in time: the cache they are kept in."""
