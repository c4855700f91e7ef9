"""Records that take the process with them that works on them: found, and failed alone."""
