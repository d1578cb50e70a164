"""The benchmark of the kernels: timing, records, tables and plots."""
