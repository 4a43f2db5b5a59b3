"""Pure tensor arithmetic of parts: groups, returns, whitening, KL estimates, stateless random numbers, epoch orders."""
