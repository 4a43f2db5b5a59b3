"""Files that survive a crash: atomic writes, folders with checksums, logs that heal, and the lock of a run."""
