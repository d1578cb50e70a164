"""Toolkits: compilers and headers that are pinned, provisioned and verified before use."""
