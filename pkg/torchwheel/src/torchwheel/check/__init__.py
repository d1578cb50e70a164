"""Gates: checks that a finished wheel must pass before it may enter an index. They fail closed."""
