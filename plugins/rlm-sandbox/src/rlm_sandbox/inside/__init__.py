"""What runs beyond the wall: the zygote, its locks, and the two roles. Imports nothing of this package but itself."""
