"""Rules about sequence batching: slots, candidates, and how long a sequence may be silent."""

from serve.triton.lint.subject import Findings, LintFinding, LintSubject

SHORTEST_IDLE = 10_000  # microseconds: a caller's way there and back takes as long
LONGEST_IDLE = 3_600_000_000  # microseconds


def control_unknown(subject: LintSubject) -> Findings:
    """A sequence control names an input that the model file does not have.

    The onnxruntime backend refuses to load the model.
    """
    known = {**subject.inputs, **subject.defaulted}
    for control in subject.message.sequence_batching.control_input if known else ():
        if control.name not in known:
            yield LintFinding(
                f"sequence_batching.control_input '{control.name}'",
                f"the model file has no such input, only {', '.join(known)}",
                "use an input of the model file",
            )


def slot_utilization(subject: LintSubject) -> Findings:
    """`minimum_slot_utilization` is not between 0 and 1.

    Triton: `sequence batching minimum slot utilization must be in range (0.0, 1.0]`.
    """
    share = subject.message.sequence_batching.direct.minimum_slot_utilization
    if not 0 <= share <= 1:
        yield LintFinding(
            "sequence_batching.direct.minimum_slot_utilization",
            f"{share:g} is not between 0 and 1",
            "use a share of the slots, such as 0.5",
        )


def candidates_negative(subject: LintSubject) -> Findings:
    """The number of candidate sequences is negative.

    Triton 2.51 loads the model and uses `max_batch_size` instead.
    """
    count = subject.message.sequence_batching.oldest.max_candidate_sequences
    if count < 0:
        yield LintFinding(
            "sequence_batching.oldest.max_candidate_sequences",
            f"it is {count}",
            "use the number of concurrent sequences, such as 32",
        )


def candidates_few(subject: LintSubject) -> Findings:
    """There are fewer candidate sequences than rows in a batch.

    Triton puts one call of each candidate into a batch, so batches are never full.
    """
    message = subject.message
    count = message.sequence_batching.oldest.max_candidate_sequences
    if 0 < count < message.max_batch_size:
        yield LintFinding(
            "sequence_batching.oldest.max_candidate_sequences",
            f"a batch has one call of each of {count} sequences, but max_batch_size is "
            f"{message.max_batch_size}",
            f"set max_candidate_sequences to {message.max_batch_size} or more",
        )


def idle_absurd(subject: LintSubject) -> Findings:
    """The idle timeout of sequences is shorter than 10 ms, or longer than one hour.

    If a sequence expires too early, Triton rejects its next call: `must specify the START flag on
    the first request of the sequence`. If it expires too late, an abandoned sequence keeps its
    slot.
    """
    idle = subject.message.sequence_batching.max_sequence_idle_microseconds
    if 0 < idle < SHORTEST_IDLE:
        yield LintFinding(
            "sequence_batching.max_sequence_idle_microseconds",
            f"sequences expire after {idle} µs, before a client can send the next call",
            "use 1000000 or more",
        )
    elif idle > LONGEST_IDLE:
        yield LintFinding(
            "sequence_batching.max_sequence_idle_microseconds",
            f"an abandoned sequence keeps its slot for {idle / 1_000_000:g} s",
            "use the longest pause between two calls, such as 60000000",
        )
