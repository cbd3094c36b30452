"""Small files that people or the broker write, and the rules by which all files are opened and replaced."""
