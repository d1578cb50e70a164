"""Gamma times one tensor plus another."""
