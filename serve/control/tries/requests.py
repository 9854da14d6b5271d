"""What a try asks: of which model and versions, with which input, given in which form."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from serve.core.errors import Invalid
from serve.core.names import check_label
from serve.tensors.input_forms import InputForm

EXAMPLE = "example"  # the one form that is not read here: it names inputs that the gateway has
FORMS = (*(form.value for form in InputForm), EXAMPLE)


@dataclass(frozen=True, slots=True)
class Offered:
    """One input as it came. `name` is a file's name; of an example it is the example's id."""

    form: str
    data: bytes = b""
    name: str = ""


@dataclass(frozen=True, slots=True)
class TryRequest:
    """One try. `a` and `b` are a number, a label, or empty; `b` is None for one side only.

    `inputs` are by name, or by an empty one for all that it holds; see `tensors/input_forms.py`.
    `batch` repeats one row, or is how many random ones are made; `seed` makes them the same again.
    """

    model: str
    a: str
    inputs: Mapping[str, Offered]
    b: str | None = None
    via: str = "http"
    batch: int | None = None
    top_k: int = 5
    seed: int | None = field(default=None)

    def __post_init__(self) -> None:
        """`Invalid` for what cannot be asked."""
        for selector in (self.a, self.b or ""):
            if selector and not (selector.isascii() and selector.isdigit()):
                check_label(selector)
        for offered in self.inputs.values():
            if offered.form not in FORMS:
                known = ", ".join(FORMS)
                raise Invalid(
                    f"'{offered.form[:40]}' is not a form of input", why=f"the forms are {known}"
                )

    @property
    def selectors(self) -> tuple[str, ...]:
        """What is asked of each side."""
        return (self.a,) if self.b is None else (self.a, self.b)
