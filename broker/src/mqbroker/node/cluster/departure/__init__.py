"""How far a node that leaves is: who takes what it has, what is left, and what a stop waits for."""
