"""What the commands of ``rlm`` find out, as plain data first and as text for a terminal after that."""
