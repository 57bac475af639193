"""Merged stacks: rank sets, FLAME's notation, folded text, and the picture."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from ml.stacks.icicle import icicle
from ml.stacks.merged import everyone, main_trie, tries_of
from ml.stacks.samples import Sample, snapshots_of
from ml.stacks.trie import folded, merge

FOUR = [(0, ["a (f:1)", "b (f:2)"]), (1, ["a (f:1)", "c (f:3)"]), (2, ["a (f:1)", "c (f:3)"]), (3, ["a (f:1)", "c (f:3)"])]


def test_folded_text_is_in_flames_layout() -> None:
    assert folded(merge(FOUR)).splitlines() == ["a (f:1)@0-3|;b (f:2)@0|1-3 1", "a (f:1)@0-3|;c (f:3)@1-3|0 1"]


def test_a_thread_that_ends_where_others_go_on_is_a_leaf_of_its_own() -> None:
    trie = merge([(0, ["a (f:1)"]), (1, ["a (f:1)", "b (f:2)"])])
    assert [(n.path[-1], n.has_ranks, n.missing_ranks, n.n, n.is_leaf) for n in trie.nodes] == [
        ("a (f:1)", (0, 1), (), 2, True),
        ("b (f:2)", (1,), (0,), 1, True),
    ]


def test_ranks_that_were_not_seen_are_missing_from_every_path() -> None:
    assert [n.missing_ranks for n in merge(FOUR[:2], ranks=range(4)).nodes] == [(2, 3), (1, 2, 3), (0, 2, 3)]


def test_equal_frames_in_different_environments_are_one_path() -> None:
    trie = merge([(0, ["f (/a/lib/python3.10/site-packages/x/y.py:3)"]), (1, ["f (/b/lib/python3.11/site-packages/x/y.py:3)"])])
    assert [(n.path, n.has_ranks) for n in trie.nodes] == [(("f (x/y.py:3)",), (0, 1))]


def test_with_more_nodes_than_can_be_shown_the_travelled_ones_stay_with_their_parents() -> None:
    stacks = [(r, ["main (m:1)", *(["common (m:2)"] if r else [f"odd{i} (m:{i})" for i in range(9)])]) for r in range(5)]
    trie = merge(stacks, max_nodes=3)
    assert [n.path[-1] for n in trie.nodes] == ["main (m:1)", "common (m:2)", "odd0 (m:0)"]
    assert trie.n_cut == 8


stack = st.lists(st.sampled_from(["a (f:1)", "b (f:2)", "c (f:3)"]), max_size=4)


@given(st.lists(st.tuples(st.integers(0, 5), stack), max_size=12))
def test_a_trie_holds_every_stack_once_and_does_not_depend_on_order(stacks: list[tuple[int, list[str]]]) -> None:
    trie = merge(stacks)
    assert trie == merge(reversed(stacks))
    for node in trie.nodes:
        expected = {rank for rank, frames in stacks if tuple(frames[: len(node.path)]) == node.path}
        assert set(node.has_ranks) == expected
        assert set(node.missing_ranks) == {rank for rank, _ in stacks} - expected
    assert {node.path for node in trie.nodes} == {tuple(f[:i]) for _, f in stacks for i in range(1, len(f) + 1)}


def test_threads_of_one_name_are_merged_whatever_their_numbers_and_processes_stay_apart() -> None:
    samples = [
        Sample(("main (t:1)",), 0, thread_name="MainThread"),
        Sample(("run (w:1)",), 0, thread_name="Thread-12"),
        Sample(("main (t:1)",), 1, thread_name="MainThread"),
        Sample(("run (w:1)",), 1, thread_name="Thread-7"),
        Sample(("loop (d:1)",), 1, process_type="dataloader", thread_name="MainThread"),
    ]
    tries = tries_of(snapshots_of(samples)[0])
    assert [(kind, n.path, n.has_ranks) for kind, trie in tries.items() for n in trie.nodes] == [
        ("dataloader", ("loop (d:1)",), (1,)),
        ("trainer", ("[Thread-#]",), (0, 1)),
        ("trainer", ("[Thread-#]", "run (w:1)"), (0, 1)),
        ("trainer", ("main (t:1)",), (0, 1)),
    ]


def test_a_rank_met_earlier_is_missing_from_a_later_snapshot() -> None:
    samples = [Sample(("f (t:1)",), r, snapshot="T0", at=1.0) for r in range(3)]
    samples += [Sample(("f (t:1)",), r, snapshot="T3", at=4.0) for r in range(2)]
    snapshots = snapshots_of(samples)
    nodes = tries_of(snapshots[1], everyone(snapshots))["trainer"].nodes
    assert [(n.has_ranks, n.missing_ranks) for n in nodes] == [((0, 1), (2,))]


HOSTILE = '</title><script>alert(1)</script>" onload="x (evil&.py:1)'


def test_the_picture_is_well_formed_and_every_text_in_it_is_escaped() -> None:
    svg = icicle(merge([(0, ["main (t:1)", HOSTILE]), (1, ["main (t:1)", "\x00\x1b]8;;x\x07(f:1)"])]), HOSTILE)
    tree = ET.fromstring(svg)  # noqa: S314 - our own output
    names = {element.tag.split("}")[-1] for element in tree.iter()}
    assert names == {"svg", "title", "text", "g", "rect"}
    boxes = [e for e in tree.iter() if e.tag.endswith("}g")]
    titles = [next(e for e in box if e.tag.endswith("title")).text for box in boxes]
    assert len(boxes) == 3
    assert titles[0] == "main (t:1) — 2 of 2 ranks: 0-1"
    assert all(attribute not in ("onload", "href") for element in tree.iter() for attribute in element.attrib)


def test_boxes_share_the_width_by_their_threads() -> None:
    tree = ET.fromstring(icicle(merge(FOUR)))  # noqa: S314 - our own output
    widths = [round(float(e.attrib["width"])) for e in tree.iter() if e.tag.endswith("rect")]
    assert widths == [1200, 300, 900]


def test_an_empty_trie_is_still_a_picture() -> None:
    assert ET.fromstring(icicle(main_trie(snapshots_of([Sample((), 0)])[0]))) is not None  # noqa: S314


def test_names_that_hold_the_host_are_no_snapshots_of_their_own() -> None:
    two_hosts = [Sample(("f (t:1)",), r, snapshot=f"host{r // 2}") for r in range(4)]
    assert [(s.tag, len(s.mains)) for s in snapshots_of(two_hosts)] == [("", 4)]
    timed = [Sample(("f (t:1)",), r, snapshot=f"host{r // 2}_T{n}", at=100.0 + 5 * n + r / 2) for n in (0, 1) for r in range(4)]
    assert [(s.tag, len(s.mains)) for s in snapshots_of(timed)] == [("T0", 4), ("T1", 4)]
