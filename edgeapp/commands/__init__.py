"""The commands, one module each: flags in, objects of the application out."""
