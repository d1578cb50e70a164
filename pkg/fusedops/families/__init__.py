"""The operators, a folder a family: what is native about it is compiled and loaded together."""
