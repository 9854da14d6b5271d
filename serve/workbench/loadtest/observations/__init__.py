"""What an `Observer` is made of: questions, counters that are subtracted, readings over time."""
