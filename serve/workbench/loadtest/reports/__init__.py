"""From a record to what people read: quantiles, objectives, comparisons, one page."""
