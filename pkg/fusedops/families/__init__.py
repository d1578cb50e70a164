"""The families of operators: a module for each name in fusedops.extension."""
