"""Statistics that decide: confidence intervals, and gates on measured numbers."""
