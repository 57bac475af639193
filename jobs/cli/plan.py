"""`fleetdiff plan`: the stages with their inputs and outputs, as people or the DAG read them."""

from __future__ import annotations

import json

import click

from jobs.core import stages


@click.command(name="plan", short_help="What runs in which order, and its tables.")
@click.option("--json", "as_json", is_flag=True, help="Print the tasks as JSON, as in dags/plan.json.")
@click.option("--tables", "as_tables", is_flag=True, help="Print every table's contract as Markdown, as in docs/tables.md.")
def command(as_json: bool, as_tables: bool) -> None:
    """Print what runs, in which order, and which tables it reads and writes."""
    if as_tables:
        from jobs.core.table_docs import tables_page

        click.echo(tables_page(), nl=False)
    elif as_json:
        click.echo(json.dumps(plan(), indent=2))
    else:
        for each in stages.STAGES:
            click.echo(f"{each.name:<15} {each.summary}\n{'':<15} reads  {', '.join(each.reads) or 'the archive'}")
            click.echo(f"{'':<15} writes {', '.join(each.writes) or 'the pages'}")


def plan() -> dict[str, list[dict[str, object]]]:
    """The tasks in order: name, stages, upstream tasks and what they do."""
    return {
        "tasks": [
            {
                "task": name,
                "stages": [each.name for each in members],
                "upstream": stages.upstream(name),
                "needs_archive": any(each.needs_archive for each in members),
                "summary": "; ".join(f"{each.name}: {each.summary}" for each in members),
            }
            for name, members in stages.tasks().items()
        ]
    }
