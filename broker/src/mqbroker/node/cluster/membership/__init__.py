"""The node as a member of its cluster: links to the others, what they tell each other, and its scale-down."""
