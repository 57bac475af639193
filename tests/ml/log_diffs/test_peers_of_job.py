"""Nodes of one job compared by what they print: literal counts."""

import pytest

from ml.log_diffs.evidence import Count, Evidence
from ml.log_diffs.peers import node_findings
from ml.log_diffs.topology import Job, Place
from ml.log_diffs.utterances import Utterance

NODES = tuple(f"n{i}" for i in range(8))


def evidence(counts, state="FAILED", news=("odd",), n_baselines=3):
    job = Job("j", state, nodes=NODES, places=tuple(Place(r, n, 0, role="trainer") for r, n in enumerate(NODES)))
    said = tuple(Utterance(t, f"{t} happened", NODES[3], 3, "trainer", "stderr") for t in news)
    return Evidence(job, said, tuple(Count(t, NODES[r], "trainer", n, (r,)) for t, r, n in counts), n_baselines=n_baselines)


def found(counts, **more):
    return {(f.finding.kind, f.finding.nodes, f.finding.ranks) for f in node_findings(evidence(counts, **more))}


ALIKE = [("step", r, 100) for r in range(8)]


def test_alike_nodes_give_nothing():
    assert found(ALIKE) == set()


def test_news_on_one_node_names_it_and_its_rank_with_the_template():
    kinds = found([*ALIKE, ("odd", 3, 20)])
    assert ("node_outlier", ("n3",), ()) in kinds
    assert ("rank_outlier", ("n3",), (3,)) in kinds
    first = node_findings(evidence([*ALIKE, ("odd", 3, 20)]))[0]
    assert (first.separating, "odd happened" in first.finding.statement) == (("odd",), True)


@pytest.mark.parametrize("rank", [0, 7])
def test_what_the_first_or_the_last_rank_says_for_all_does_not_accuse_it(rank):
    assert found([*ALIKE, ("odd", rank, 20)]) == set()


def test_what_is_no_news_does_not_accuse():
    assert found([*ALIKE, ("odd", 3, 20)], news=()) == set()


def test_without_a_baseline_chatter_does_not_accuse():
    assert found([*ALIKE, ("odd", 3, 20)], n_baselines=0) == set()


def test_a_node_without_what_all_others_print_is_missed_in_a_failed_job_only():
    counts = [("step", r, 100) for r in range(8) if r != 5]
    counts.append(("boot", 5, 1))
    assert ("lacks_templates", ("n5",), (5,)) in found(counts)
    assert found(counts, state="COMPLETED") == set()
