"""Prefixes that launchers put before every line, and the progress lines of frameworks that have no common form."""

import pytest

from jobs.adapters.facts import progress_of
from jobs.adapters.headers import HeaderReader
from jobs.adapters.stamps import Clock, from_us


def read(*lines):
    reader = HeaderReader(Clock("UTC", None))
    headers = [reader.read(line) for line in lines]
    return headers[-1], lines[-1][headers[-1].start :]


@pytest.mark.parametrize(
    ("line", "expected", "message"),
    [
        (
            "[1,3]<stderr>:Traceback (most recent call last):",
            {"rank": 3},
            "Traceback (most recent call last):",
        ),  # mpirun --tag-output
        ("[1,12]<stdout>:  File x", {"rank": 12}, "  File x"),
        ("(RayTrainWorker pid=4007, ip=10.0.0.18) step 3", {"pid": 4007, "node": "10.0.0.18"}, "step 3"),
        ("(train_loop pid=11) KeyError: 'x'", {"pid": 11, "node": None}, "KeyError: 'x'"),
    ],
)
def test_a_launcher_says_who_writes(line, expected, message):
    header, rest = read(line)
    assert {name: getattr(header, name) for name in expected} == expected
    assert rest == message


def test_a_host_before_every_line_is_known_once_one_line_is_sure():
    sure = "gn017: [2026-05-17 11:00:00,123] [INFO] [launch.py:145:main] WORLD INFO DICT"
    header, rest = read(sure, "gn018: Traceback (most recent call last):")
    assert (header.node, rest) == ("gn018", "Traceback (most recent call last):")


def test_a_word_before_a_colon_is_no_host_by_itself():
    header, rest = read("layer12: Traceback (most recent call last):")
    assert (header.node, rest) == (None, "layer12: Traceback (most recent call last):")


@pytest.mark.parametrize(
    ("line", "iteration", "loss"),
    [
        ("iter 10: loss 2.3456, time 123.45ms, mfu 12.1%", 10, 2.3456),  # nanoGPT
        ("Step #12\tLoss: 8.9", 12, 8.9),  # Horovod's examples
        ("Epoch 0, global step 12: train_loss=8.9", 12, 8.9),  # Lightning
        ("completed step: 12, seconds: 1.2, TFLOP/s: 33, loss: 2.1", 12, 2.1),  # MaxText
    ],
)
def test_progress_is_read_however_the_step_is_written(line, iteration, loss):
    found = progress_of(line)
    assert found is not None
    assert (found.iteration, found.loss) == (iteration, loss)


@pytest.mark.parametrize("line", ["step 12:30:44 foo=2", "next step: see the docs: a=b"])
def test_a_time_or_a_word_is_no_step(line):
    assert progress_of(line) is None


@pytest.mark.parametrize(
    ("near", "latest", "year"),
    [
        ("2026-05-18", None, 2026),
        ("2026-11-30", None, 2027),  # six months and more away: the nearest is a guess
        ("2026-11-30", "2026-12-01", 2026),  # a file cannot tell of what came after it was written
        ("2027-01-02", "2027-01-03", 2026),  # the year turned in between
    ],
)
def test_a_stamp_without_a_year_lies_before_the_file_was_last_written(near, latest, year):
    clock = Clock("UTC", Clock().iso(f"{near} 00:00:00"), Clock().iso(f"{latest} 00:00:00") if latest else None)
    told = from_us(clock.yearless(12 if near.startswith("2027") else 5, 30, "10:00:00"))
    assert told is not None
    assert told.year == year
