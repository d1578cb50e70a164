"""Does what is here fit together: rules over facts, before a build and at load."""
