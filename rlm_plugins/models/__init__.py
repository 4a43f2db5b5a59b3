"""Models: loading and initialization of policies, adapters, critics, reward models, auxiliary optimizers."""
