"""What is known to be broken: a file of the corpus that fails, and why that is not mended yet.

The suite expects these to fail, and fails itself when one of them passes: whoever mends something
deletes its line here.
"""

KNOWN: dict[str, str] = {}
