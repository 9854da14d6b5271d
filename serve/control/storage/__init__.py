"""The store: what people have decided, and every change they made; the only place with SQL."""
