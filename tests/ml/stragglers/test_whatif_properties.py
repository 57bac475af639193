"""What holds of every what-if analysis, whatever the layout, the order of the rows, and the types of the columns."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ml.stragglers.synthetic import Recipe, columns
from ml.stragglers.trace import Layout
from ml.stragglers.whatif import analyse


@st.composite
def recipes(draw):
    pp = draw(st.sampled_from([1, 2, 4]))
    layout = Layout(draw(st.integers(1, 4)), pp, vpp_size=draw(st.sampled_from([1, 2, 3])) if pp > 1 else 1)
    slow = {(draw(st.integers(0, pp - 1)), draw(st.integers(0, layout.dp_size - 1))): draw(st.floats(1.0, 3.0))}
    return Recipe(
        layout, n_micro_batches=2 * pp, n_steps=draw(st.integers(1, 3)), noise=draw(st.floats(0.0, 0.4)), slow=slow,
        records_idle=draw(st.booleans()), overlaps_dp=draw(st.booleans()), seed=draw(st.integers(0, 99)),
    )  # fmt: skip


def figures(result):
    # shares of next to nothing are noise
    shares = [result.worst.share, result.last_stage.share] if result.slowdown > 1.01 else []
    return [
        result.slowdown, result.launch_slowdown, *result.step_slowdown, *result.by_type.values(), *result.by_dp_rank.values(),
        *result.by_stage.values(), *shares,
    ]  # fmt: skip


@settings(max_examples=20, deadline=None)
@given(recipes())
def test_removing_stragglers_never_makes_a_job_slower_and_the_parts_fit_together(recipe):
    result = analyse(columns(recipe), recipe.layout)
    # Ideal durations are means: they shorten a step of equal workers side by side, but may lengthen one whose slow stage hid behind others.
    assert result.slowdown >= (1 - 1e-9 if recipe.layout.pp_size == 1 else 0.8)
    assert result.launch_slowdown == pytest.approx(1.0, abs=1e-9)  # played without launch delays
    assert result.waste == pytest.approx(1 - 1 / result.slowdown)
    assert np.mean(result.step_slowdown) == pytest.approx(result.slowdown)
    for worker in result.workers:
        assert worker.slowdown == min(result.by_dp_rank[worker.dp_rank], result.by_stage[worker.stage])
    if recipe.layout.dp_size == 1:
        assert result.by_dp_rank == {0: pytest.approx(result.slowdown)}
    if recipe.layout.pp_size == 1:
        assert result.by_stage == {0: pytest.approx(result.slowdown)}


@settings(max_examples=10, deadline=None)
@given(recipes(), st.integers(0, 1000))
def test_order_origin_and_types_of_the_columns_do_not_matter(recipe, seed):
    trace = columns(recipe)
    plain = figures(analyse(trace, recipe.layout))
    order = np.random.default_rng(seed).permutation(len(trace["step"]))
    changed = {name: trace[name][order] for name in reversed(list(trace))}
    changed["start_ts"] = changed["start_ts"] + 5e5
    changed["step"] = changed["step"].astype(np.int16) + 100
    changed["mb_id"] = changed["mb_id"].astype(np.float64)
    changed["dp_rank"] = changed["dp_rank"].astype(np.int8)
    assert figures(analyse(changed, recipe.layout)) == pytest.approx(plain, rel=1e-6, abs=1e-6, nan_ok=True)
