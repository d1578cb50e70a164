"""A static package index: PEP 503 pages, PEP 691 documents, PEP 658 metadata, any web host."""
