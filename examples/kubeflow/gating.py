"""Whether a trained model may go on: plain numbers in, a verdict with its reason out.

| what is known                                         | verdict                        |
|-------------------------------------------------------|--------------------------------|
| nothing was measured                                  | no                             |
| fewer right answers than `minimum`                    | no                             |
| no version has the label yet                          | yes                            |
| the labelled version was asked other rows             | no: they cannot be compared    |
| more is lost against the labelled version than allowed | no                            |
| otherwise                                             | yes                            |

kfp takes the function alone into its step, so it needs nothing from around it.
"""


def decide(
    right: int,
    rows: int,
    standing_right: int,
    standing_rows: int,
    minimum: float,
    allowed_drop: float,
) -> tuple[bool, str]:
    """The verdict and its reason. `standing_rows` is 0 where no version has the label.

    `minimum` and `allowed_drop` are shares of the rows, such as 0.95 and 0.005.
    """
    if rows < 1:
        return False, "nothing was measured"
    accuracy = right / rows
    found = f"{right} of {rows} held-out rows right ({accuracy:.2%})"
    if accuracy < minimum:
        return False, f"{found}; at least {minimum:.2%} is needed"
    if standing_rows < 1:
        return True, f"{found}; no version has the label yet"
    if standing_rows != rows:
        return False, f"{found}, but the labelled version was asked {standing_rows} rows"
    standing = f"the labelled version has {standing_right} right ({standing_right / rows:.2%})"
    lost = standing_right - right
    if lost > allowed_drop * rows:
        return False, f"{found}; {standing}: {lost} lost, {int(allowed_drop * rows)} may be"
    return True, f"{found}; {standing}"
