"""How much a served model can take: service times, batches and queues, as plain mathematics."""
