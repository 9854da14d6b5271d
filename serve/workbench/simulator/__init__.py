"""A fleet of batch servers on paper: loads, replicas that start and go, and who says how many."""
