"""Programs that are sent to hosts and run by their own Python. They import nothing but its standard library."""
