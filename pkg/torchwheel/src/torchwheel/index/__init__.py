"""A static package index for any web host: PEP 503 pages, PEP 691 documents, PEP 658 metadata."""
