"""The files of the log, byte by byte."""
