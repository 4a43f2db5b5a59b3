"""Reports as plain data and as text for a terminal: what the command line and the Python API print."""
