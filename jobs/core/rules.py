"""The rules of a contract as SQL conditions of rows that break them: the same words for Spark and for DuckDB."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.contract import Column, Severity, Table


@dataclass(frozen=True)
class Rule:
    """One expectation: its name (`rank ≥ 0`), and the SQL condition of a row that breaks it."""

    name: str
    broken: str
    severity: Severity


def rules_of(table: Table) -> list[Rule]:
    """The contract's rules, in the order of the columns."""
    rules = [rule for column in table.columns for rule in _column_rules(column)]
    rules += [Rule(check.name, f"NOT coalesce(({check.condition}), true)", check.severity) for check in table.checks]
    rules.append(Rule(f"{', '.join(table.key)} is unique", "", Severity.CRITICAL))
    return rules


def _column_rules(column: Column) -> list[Rule]:
    name = f"`{column.name}`"
    rules = []
    if not column.nullable:
        rules.append(Rule(f"{column.name} is not null", f"{name} IS NULL", column.severity))
    if column.one_of:
        allowed = ", ".join(f"'{value}'" for value in column.one_of)
        rules.append(Rule(f"{column.name} is a known word", f"{name} NOT IN ({allowed})", column.severity))
    if column.minimum is not None:
        rules.append(Rule(f"{column.name} ≥ {column.minimum:g}", f"{name} < {column.minimum}", column.severity))
    if column.maximum is not None:
        rules.append(Rule(f"{column.name} ≤ {column.maximum:g}", f"{name} > {column.maximum}", column.severity))
    if column.pattern:
        rules.append(Rule(f"{column.name} has its form", f"NOT {name} RLIKE r'{column.pattern}'", column.severity))
    return rules
