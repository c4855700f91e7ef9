"""What verbs share: options, questions, tables on the screen, exit codes."""
