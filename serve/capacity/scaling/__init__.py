"""How many replicas a pool needs: a policy of pure functions, over what was seen."""
