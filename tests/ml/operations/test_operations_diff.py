"""Operations of a base and a test."""

from ml.operations.diff import Status, Usage, compare


def test_every_operation_gets_its_fate_and_the_costliest_comes_first():
    base = {
        ("gpu", "gemm"): Usage(10, 1.0),
        ("gpu", "softmax"): Usage(2, 0.2),
        ("host", "copy"): Usage(1, 0.1),
        ("gpu", "relu"): Usage(4, 0.4),
    }
    test = {
        ("gpu", "gemm"): Usage(10, 3.0),
        ("gpu", "flash"): Usage(2, 0.3),
        ("host", "copy"): Usage(1, 0.1),
        ("gpu", "relu"): Usage(4, 0.2),
    }
    assert [(d.name, d.status) for d in compare(base, test)] == [
        ("gemm", Status.SLOWER),  # + 2.0 s
        ("flash", Status.ADDED),  # + 0.3 s
        ("relu", Status.FASTER),  # - 0.2 s
        ("softmax", Status.REMOVED),  # - 0.2 s
        ("copy", Status.SAME),
    ]


def test_more_calls_of_the_same_length_are_not_slower():
    (diff,) = compare({("gpu", "gemm"): Usage(1, 1.0)}, {("gpu", "gemm"): Usage(3, 3.0)})
    assert diff.status is Status.SAME
    assert diff.seconds == 2.0
