"""Toolkits: compilers and headers, provisioned, pinned and verified before use."""
