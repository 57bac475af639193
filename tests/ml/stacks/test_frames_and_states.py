"""Frames made comparable, and what a stack says that its thread is doing."""

from __future__ import annotations

import pytest

from ml.stacks.frames import cut_path, normal, normal_stack, telling
from ml.stacks.states import Activity, doing, is_idle_worker

PATHS = [
    # as recorded, as compared
    ("/opt/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", "torch/nn/modules/module.py"),
    ("/usr/lib/python3/dist-packages/numpy/core.py", "numpy/core.py"),
    ("/opt/python/lib/python3.11/threading.py", "threading.py"),
    ("/workspace/train.py", "train.py"),
    ("/scratch/job-88123/pretrain.py", "pretrain.py"),
    ("/tmp/tmpab12cd/data.py", "data.py"),
    ("/home/me/gpt/model/attention.py", "model/attention.py"),
    ("/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc", "tcp/pair.cc"),
    ("train.py", "train.py"),
    ("C:\\jobs\\net\\train.py", "net/train.py"),
]


@pytest.mark.parametrize(("recorded", "compared"), PATHS)
def test_paths_are_cut_to_what_all_machines_share(recorded: str, compared: str) -> None:
    assert cut_path(recorded) == compared


def test_a_frame_has_a_key_with_and_one_without_its_line_and_wrappers_are_known() -> None:
    frame = normal("Module._call_impl (/v/lib/python3.11/site-packages/torch/nn/modules/module.py:1798)")
    assert (frame.key, frame.loose) == (
        "Module._call_impl (torch/nn/modules/module.py:1798)",
        "Module._call_impl (torch/nn/modules/module.py)",
    )
    assert frame.is_wrapper
    stack = normal_stack(["<module> (train.py:1)", "Module._call_impl (m.py:2)", "forward (n.py:3)"])
    assert [f.function for f in telling(stack)] == ["<module>", "forward"]


def test_what_is_no_frame_is_kept_as_a_function() -> None:
    assert normal("???").key == "???"
    assert normal("x" * 100_000).key == "x" * 600


T = "/v/lib/python3.11/site-packages/torch"
STACKS = [
    # innermost frames, active, activity, what
    ([f"all_reduce ({T}/distributed/distributed_c10d.py:4181)"], False, Activity.COLLECTIVE, "all_reduce"),
    ([f"barrier ({T}/distributed/distributed_c10d.py:6614)"], False, Activity.COLLECTIVE, "barrier"),
    (
        [f"all_gather_into_tensor ({T}/distributed/distributed_c10d.py:1)", "wait (x.py:2)"],
        False,
        Activity.COLLECTIVE,
        "all_gather_into_tensor",
    ),
    (["ncclAllReduce (libnccl.so)", "futex_wait"], False, Activity.COLLECTIVE, "ncclAllReduce"),
    ([f"recv ({T}/distributed/distributed_c10d.py:1)"], False, Activity.POINT_TO_POINT, "recv"),
    (
        [f"init_process_group ({T}/distributed/distributed_c10d.py:1)", "wait (s.py:1)"],
        False,
        Activity.RENDEZVOUS,
        "init_process_group",
    ),
    (
        [f"_BaseDataLoaderIter.__next__ ({T}/utils/data/dataloader.py:725)", "poll (selectors.py:4)"],
        False,
        Activity.DATA_WAIT,
        "poll",
    ),
    ([f"save ({T}/serialization.py:1)", "write (zip.py:2)"], True, Activity.CHECKPOINT, "write"),
    (["snapshot_download (huggingface_hub/_snapshot_download.py:1)", "read (ssl.py:2)"], False, Activity.DOWNLOAD, "read"),
    ([f"compile_fx ({T}/_inductor/compile_fx.py:1)"], True, Activity.COMPILE, "compile_fx"),
    (["<module> (train.py:191)"], False, Activity.OTHER, "<module>"),
    (["reduce (functools.py:3)"], True, Activity.OTHER, "reduce"),
    ([], True, Activity.EXITING, "exiting"),
    ([], None, Activity.UNSAMPLED, "unsampled"),
]


@pytest.mark.parametrize(("frames", "active", "activity", "what"), STACKS, ids=[f"{s[2]}-{i}" for i, s in enumerate(STACKS)])
def test_a_stack_tells_what_its_thread_does(frames: list[str], active: bool | None, activity: Activity, what: str) -> None:
    found = doing(normal_stack(frames), active)
    assert (found.activity, found.what) == (activity, what)


def test_a_checkpoint_that_waits_in_a_barrier_is_in_the_barrier() -> None:
    stack = normal_stack([f"save_checkpoint ({T}/c.py:1)", f"barrier ({T}/distributed/distributed_c10d.py:2)"])
    assert doing(stack, False).is_waiting


def test_a_worker_that_waits_for_orders_is_idle_and_one_that_reads_is_not() -> None:
    loop = "_worker_loop (torch/utils/data/_utils/worker.py:335)"
    assert is_idle_worker(normal_stack([loop, "Queue.get (multiprocessing/queues.py:113)", "poll (selectors.py:4)"]))
    assert not is_idle_worker(normal_stack([loop, "fetch (fetch.py:5)", "__getitem__ (data.py:9)", "read (data.py:12)"]))
    assert not is_idle_worker(())
