"""The tables of a target: what a batch needs of them, who owns them, and how they are changed."""
