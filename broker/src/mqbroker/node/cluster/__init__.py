"""Links to other nodes, and what is done over them."""
