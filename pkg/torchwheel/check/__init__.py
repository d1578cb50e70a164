"""Gates: what must hold of a finished wheel before it may enter an index. They fail closed."""
