"""All evidence of each job fused: reads every findings table, writes `diagnoses`."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from jobs.core.errors import FleetdiffError
from jobs.core.runner import StageContext
from jobs.core.stages import FINDINGS
from jobs.diagnoses.transform import all_findings, bundles, diagnosed

NOT_FUSED = ("straggler_reports",)
"""Reports of cost; what they find stands in `operation_findings`."""


def run(context: StageContext) -> None:
    """One row a pending job. Setting `cause_rules` names a YAML file of a site's own rules."""
    found = all_findings({name: context.read_pending(name) for name in FINDINGS if name not in NOT_FUSED})
    bundled = bundles(
        context.read_pending("training_jobs"),
        context.read_pending("ranks"),
        found,
        context.read_pending("baselines"),
        context.read("node_events"),
        context.read("normal_templates"),
    )
    context.write("diagnoses", diagnosed(bundled, code_version(), rules_text(context.settings.get("cause_rules"))))


def code_version() -> str:
    """Version of the installed package, `unknown` when it runs from a bare folder."""
    try:
        return version("fleetdiff")
    except PackageNotFoundError:
        return "unknown"


def rules_text(path: str | None) -> str | None:
    """A site's cause rules, checked here so that a mistake is reported once and not by every task."""
    if not path:
        return None
    from ml.fusion.rules import parse_rules

    try:
        text = Path(path).read_text()
        parse_rules(text)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FleetdiffError(f"{path}: no usable cause rules: {error}; compare ml/fusion/causes.yaml") from error
    return text
