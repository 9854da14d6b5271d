"""What the fleet does now: one sampler, a sample a second, and any number of people who watch."""
