"""Rules about sequence batching: slots, candidates, and how long a sequence may be silent."""

from serve.triton.lint.subject import Finding, Findings, Subject

SHORTEST_IDLE = 10_000  # microseconds: a caller's way there and back takes as long
LONGEST_IDLE = 3_600_000_000  # microseconds


def control_unknown(subject: Subject) -> Findings:
    """A control of sequences names an input that the model file does not have.

    The onnxruntime backend refuses the load.
    """
    known = {**subject.inputs, **subject.defaulted}
    for control in subject.message.sequence_batching.control_input if known else ():
        if control.name not in known:
            yield Finding(
                f"sequence_batching.control_input '{control.name}'",
                f"the model file has no such input, only {', '.join(known)}",
                "an input that the model file has",
            )


def slot_utilization(subject: Subject) -> Findings:
    """`minimum_slot_utilization` that is no share.

    Triton: `sequence batching minimum slot utilization must be in range (0.0, 1.0]`.
    """
    share = subject.message.sequence_batching.direct.minimum_slot_utilization
    if not 0 <= share <= 1:
        yield Finding(
            "sequence_batching.direct.minimum_slot_utilization",
            f"{share:g} is no share of the slots",
            "from 0 to 1, such as 0.5",
        )


def candidates_negative(subject: Subject) -> Findings:
    """A negative number of candidate sequences.

    Triton 2.51 loads it and takes `max_batch_size` in its place.
    """
    count = subject.message.sequence_batching.oldest.max_candidate_sequences
    if count < 0:
        yield Finding(
            "sequence_batching.oldest.max_candidate_sequences",
            f"it is {count}",
            "as many as there are sequences at a time, such as 32",
        )


def candidates_few(subject: Subject) -> Findings:
    """Fewer candidate sequences than a batch has rows.

    Triton puts one call of each candidate into a batch: it never gets full.
    """
    message = subject.message
    count = message.sequence_batching.oldest.max_candidate_sequences
    if 0 < count < message.max_batch_size:
        yield Finding(
            "sequence_batching.oldest.max_candidate_sequences",
            f"a batch holds one call of each of {count} sequences, max_batch_size is "
            f"{message.max_batch_size}",
            f"max_candidate_sequences: {message.max_batch_size} or more",
        )


def idle_absurd(subject: Subject) -> Findings:
    """Sequences are given up between two calls, or keep their slot for hours.

    Triton: `must specify the START flag on the first request of the sequence`, for a call that
    comes after its sequence was given up.
    """
    idle = subject.message.sequence_batching.max_sequence_idle_microseconds
    if 0 < idle < SHORTEST_IDLE:
        yield Finding(
            "sequence_batching.max_sequence_idle_microseconds",
            f"{idle} µs are over before a caller can send its next call",
            "1000000, or more",
        )
    elif idle > LONGEST_IDLE:
        yield Finding(
            "sequence_batching.max_sequence_idle_microseconds",
            f"a sequence that was left keeps its slot for {idle / 1_000_000:g} s",
            "the longest pause that callers make, such as 60000000",
        )
