"""Logs in the layout of Transporter's commit log, out of ours and into it."""
