"""The step: who gets what came in, and what goes out."""
