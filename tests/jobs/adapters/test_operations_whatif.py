"""Published traces and their published results; files that cannot be used."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from jobs.adapters.operations_whatif import read_columns, read_layout
from jobs.cli.whatif import command
from jobs.core.errors import FleetdiffError, NotFoundError
from ml.stragglers.synthetic import Recipe, columns
from ml.stragglers.trace import Layout

CLOSE = 1e-5  # times are stored as 32-bit floats: the last digits of the published figures depend on their sums


@pytest.mark.parametrize(("name", "cause"), [("AR", "worker"), ("SE", "sequence")])
def test_the_published_figures_are_reached(shared_data, name, cause):
    folder = shared_data / "straggler"
    run = CliRunner().invoke(command, [str(folder / f"trace-{name}.parquet"), str(folder / f"meta-{name}.yaml"), "--json"])
    ours = json.loads(run.output)
    published = json.loads((folder / f"result-{name}.json").read_text())
    assert ours["S"] == pytest.approx(published["blocking_slowdown"], rel=CLOSE)
    assert ours["launch_slowdown"] == pytest.approx(published["launch_slowdown"], rel=CLOSE)
    assert ours["S_t"] == pytest.approx(published["blocking_decompose_by_optype"], rel=CLOSE)
    assert ours["S_dp"] == pytest.approx(published["blocking_decompose_by_dp_rank"], rel=CLOSE)
    assert ours["S_pp"] == pytest.approx(published["blocking_decompose_by_stage"], rel=CLOSE)
    steps = dict(zip(map(str, ours["steps"]), ours["step_slowdown"], strict=True))
    assert steps == pytest.approx(published["blocking_step_slowdown"], rel=CLOSE)
    for file, share, part in (("mw", "M_W", "worst_workers"), ("ms", "M_S", "last_stage")):
        expected = json.loads((folder / f"{file}-{name}.json").read_text())
        assert ours[share] == pytest.approx(expected["rem"], rel=CLOSE)
        assert ours[part]["T_rem"] == pytest.approx(expected["trem"], rel=CLOSE)
        assert ours[part]["T_add"] == pytest.approx(expected["tadd"], rel=CLOSE)
        assert (ours["T"], ours["T_ideal"]) == pytest.approx((expected["tori"], expected["tideal"]), rel=CLOSE)
    assert ours["cause"] == cause


@pytest.fixture
def files(tmp_path):
    trace = columns(Recipe(Layout(2, 2), n_micro_batches=2, n_steps=2))
    trace["rank"] = trace["dp_rank"] * 2 + trace["stage"]
    trace["gmc"] = trace["mc"]
    pq.write_table(pa.table(trace), tmp_path / "trace.parquet")
    (tmp_path / "meta.yaml").write_text("dp_size: 2\npp_size: 2\ntp_size: 1\nworld_size: 4\n")
    return tmp_path / "trace.parquet", tmp_path / "meta.yaml"


def test_the_command_prints_json_and_nothing_else(files):
    run = CliRunner().invoke(command, [*map(str, files), "--json"])
    document = json.loads(run.stdout)
    assert run.exit_code == 0
    assert set(document) >= {
        "S", "waste", "T", "T_ideal", "S_t", "S_dp", "S_pp", "S_w", "M_W", "M_S", "launch_slowdown", "step_slowdown",
        "sequence_correlation", "cause",
    }  # fmt: skip
    assert len(document["S_w"]) == 4
    assert list(document["S_pp"]) == ["0", "1"]


def test_a_lost_column_is_named(files):
    table = pq.read_table(files[0])
    pq.write_table(table.drop_columns(["seq_id"]), files[0])
    with pytest.raises(FleetdiffError, match="columns are missing: seq_id"):
        read_columns(files[0])


def test_a_missing_value_is_refused(files):
    table = pq.read_table(files[0])
    holes = pa.array([None, *table["duration"].to_pylist()[1:]])
    pq.write_table(table.set_column(table.column_names.index("duration"), "duration", holes), files[0])
    with pytest.raises(FleetdiffError, match="duration has 1 missing"):
        read_columns(files[0])


# what the meta file holds, and what is said about it
BAD_META = [
    ("dp_size: [", "not YAML"),
    ("- 1\n- 2\n", "keys and values"),
    ("dp_size: 2\nworld_size: 4\n", "pp_size missing"),
    ("dp_size: two\npp_size: 2\nworld_size: 4\n", "dp_size must be a whole number"),
]


@pytest.mark.parametrize(("text", "said"), BAD_META)
def test_a_meta_file_that_cannot_be_used_says_why(tmp_path, text, said):
    (tmp_path / "meta.yaml").write_text(text)
    with pytest.raises(FleetdiffError, match=said):
        read_layout(tmp_path / "meta.yaml")


def test_files_that_are_absent_or_no_parquet(tmp_path, files):
    with pytest.raises(NotFoundError):
        read_columns(tmp_path / "none.parquet")
    (tmp_path / "text.parquet").write_text("hello")
    with pytest.raises(FleetdiffError, match="not a readable parquet"):
        read_columns(tmp_path / "text.parquet")


def test_the_world_size_is_checked(files):
    files[1].write_text("dp_size: 2\npp_size: 2\ntp_size: 2\nworld_size: 4\n")
    run = CliRunner().invoke(command, list(map(str, files)))
    assert isinstance(run.exception, FleetdiffError)
    assert "world_size is 4" in str(run.exception)
