"""From what a replica holds to what it should hold, and to knowing that it answers rightly."""
