"""Who may send, from where, and how many connections may be open."""
