"""From an upload that is whole to a published version, and to its end."""
