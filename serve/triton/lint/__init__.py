"""Lint: a version's configuration held against its model file and files, before any Triton sees it.

`lint` runs the table of `rules.py` over a `LintSubject`. Every rule says which field is wrong,
why, and how to mend it. What Triton itself does with such a configuration stands in the
rule's docstring, as seen with Triton 2.51: mostly it refuses the load and says so only in its log.
"""

from serve.triton.lint.rules import BATCHING, RULES, LintRule, lint
from serve.triton.lint.subject import Diagnosis, LintSubject, Severity

__all__ = ["BATCHING", "RULES", "Diagnosis", "LintRule", "LintSubject", "Severity", "lint"]
