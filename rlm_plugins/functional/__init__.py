"""Pure tensor arithmetic shared by parts: groups, returns, whitening, KL estimates, stateless random numbers."""
