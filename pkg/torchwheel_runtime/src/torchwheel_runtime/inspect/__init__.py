"""Reads binaries and the files beside them: ELF, GPU code, RECORD."""
