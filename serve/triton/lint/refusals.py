"""Rules about what Servegate does not publish, although a Triton would load it."""

from serve.core.errors import Invalid
from serve.triton.canonical import canonical_of
from serve.triton.lint.subject import Findings, LintFinding, LintSubject


def field_refused(subject: LintSubject) -> Findings:
    """A field, or a path in a field, is not allowed in a published version.

    Triton 2.51 follows `../` in such paths, and loads the library that `runtime` names.
    """
    if subject.config is None:
        return
    try:
        canonical_of(subject.config)
    except Invalid as error:
        fix = error.try_this or "use the name of a file of this model"
        yield LintFinding("config.pbtxt", f"{error.what}: {error.why}", fix)
