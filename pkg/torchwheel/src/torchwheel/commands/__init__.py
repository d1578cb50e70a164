"""The commands: each is one entry with its name, help, options and action.

A command imports what it needs when it runs: `smoke --here` and `check` must work on a GPU machine
that has none of the build's dependencies.
"""
