"""`fleetdiff templates FILE…`: mine log files as they are, without Spark."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ml.templates.library import Library
    from ml.templates.predefined import Rules

TRAINING = ("torchrun_log", "rank_log", "slurm_log", "mlperf_log", "elastic_error", "cri_log", "docker_json", "container_json")
"""Adapters whose logs have events of several lines; every line of any other text is an event."""
TRACEBACK = "Traceback (most recent call last):"
SHOWN = 160

Event = tuple[str, int, str]


@click.command("templates", short_help="The templates of log files as they are.")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON Lines, one a log event, and nothing else.")
@click.option("--rules", type=click.Path(path_type=Path), help="YAML with more templates and alert rules (docs/templates.md).")
def command(files: tuple[Path, ...], as_json: bool, rules: Path | None) -> None:
    """Mine log files as they are: which template each event has.

    Training logs are read as ingest reads them, a traceback is one event; in other text every line is one. Headers
    are learned from the lines. The same lines give the same ids in any order and on any machine. (With --lake this
    is the stage of that name.)
    """
    events = [event for file in files for event in read(file)]
    names, library = mined([message for _, _, message in events], _rules(rules))
    if as_json:
        _print_json(events, names, library)
        return
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    click.echo(f"{len(events):,} events, {len(counts):,} templates (library {library.version})")
    for name, n in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        template = library.templates[name]
        text = template.text if len(template.text) <= SHOWN else template.text[: SHOWN - 1] + "…"
        click.echo(f"{n:>9,}  {name:<18} {template.alert or '':<10} {text}")


def mined(messages: list[str], rules: Rules | None = None) -> tuple[list[str], Library]:
    """The template id of each message, and the library that they make."""
    import numpy as np

    from ml.templates.library import Library, grown
    from ml.templates.masking import masked_messages, message_keys

    _, first, group = np.unique(message_keys(messages), return_index=True, return_inverse=True)
    distinct = masked_messages([messages[number] for number in first.tolist()])
    library = grown(Library(), distinct, rules)
    ids = [library.messages[masked] for masked in distinct]
    return [ids[number] for number in group.tolist()], library


def read(file: Path) -> list[Event]:
    """The events of a file: (path, number of the first line, message); raises FleetdiffError when it is no text."""
    from jobs.adapters import registry
    from jobs.adapters.lines import LineReader, is_binary
    from jobs.adapters.streams import Decompressed, peek
    from jobs.core.errors import FleetdiffError, NotFoundError
    from ml.templates.layout import learned

    try:
        with open(file, "rb") as raw:
            stream = Decompressed(raw, file.stat().st_size)
            head, whole = peek(stream)  # type: ignore[arg-type]
            if is_binary(head):
                raise FleetdiffError(f"{file}: not text; give log files")
            adapter, _ = registry.choose(str(file), head)
            if adapter is not None and (adapter.name in TRAINING or (adapter.name == "text_log" and TRACEBACK.encode() in head)):
                return list(_merged(file, adapter.name, whole))
            lines = [line for block in LineReader(whole).blocks() for line in block.lines]
    except FileNotFoundError:
        raise NotFoundError(f"{file}: no such file; give the path of a log file") from None
    except OSError as error:
        raise FleetdiffError(f"{file}: {error.strerror or error}; give the path of a log file") from error
    layout = learned(lines)
    return [(str(file), number, layout.message(line)) for number, line in enumerate(lines, 1) if line.strip()]


def _merged(file: Path, adapter: str, stream: object) -> Iterator[Event]:
    """Events as ingest would make them, in the order of the file."""
    from jobs.adapters import registry
    from jobs.adapters.base import FileContext, Rows

    reader = next(each for each in registry.adapters() if each.name == adapter)
    found: list[Event] = []
    for batch in reader.parse(stream, FileContext(job_id="bare", path=str(file))):  # type: ignore[arg-type]
        if isinstance(batch, Rows) and batch.table == "log_records":
            columns = (batch.columns[name] for name in ("line", "message"))
            values = (column if isinstance(column, list) else column.to_pylist() for column in columns)
            found += [(str(file), line, message) for line, message in zip(*values)]
    yield from sorted(found, key=lambda event: event[1])


def _rules(path: Path | None) -> Rules | None:
    from jobs.core.errors import FleetdiffError
    from ml.templates.predefined import rules_of

    if path is None:
        return None
    try:
        return rules_of(path.read_text())
    except (OSError, ValueError) as error:
        raise FleetdiffError(f"{path}: {error}; see docs/templates.md for the form of template rules") from error


def _print_json(events: list[Event], names: list[str], library: Library) -> None:
    import orjson

    ends = {
        name: b',"template_id":%b,"template":%b}\n' % (orjson.dumps(name), orjson.dumps(t.text))
        for name, t in library.templates.items()
    }
    starts: dict[str, bytes] = {}
    out = sys.stdout.buffer
    for (file, line, _), name in zip(events, names):
        start = starts.get(file)
        if start is None:
            start = starts[file] = b'{"file":%b,"line":' % orjson.dumps(file.encode("utf-8", "replace").decode())
        out.write(b"%b%d%b" % (start, line, ends[name]))
    out.flush()
