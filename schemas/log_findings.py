"""What a job's logs say that its baselines, its peers and the fleet's normal library do not."""

import pyarrow as pa

from schemas.columns import FINDING_COLUMNS
from schemas.contract import TIMESTAMP, Column, Layer, Table
from schemas.templates import ALERTS

TABLE = Table(
    name="log_findings",
    layer=Layer.GOLD,
    row="one difference in the logs of one job: a template (new, changed, missing, an alert), an end, an error, a silence",
    columns=(
        *FINDING_COLUMNS,
        Column("template_id", pa.string(), "template that differs; null when the finding is not about one template"),
        Column("template", pa.string(), "its text"),
        Column("alert", pa.string(), "kind of alert that it raises", one_of=ALERTS),
        Column("n_events", pa.int64(), "events of the template in this job", minimum=0),
        Column("first_at", TIMESTAMP, "first of them"),
        Column("rate", pa.float64(), "events per rank-hour in this job", minimum=0),
        Column("baseline_rate", pa.float64(), "median of the same over the baselines", minimum=0),
        Column("q_value", pa.float64(), "rate test, corrected within the job", minimum=0, maximum=1),
        Column("in_baselines", pa.bool_(), "at least one baseline prints it", nullable=False),
        Column("in_library", pa.bool_(), "the fleet's successful jobs print it", nullable=False),
        Column("example", pa.string(), "one message as it was printed, redacted"),
    ),
    key=("job_id", "finding_id"),
    replaced_by="job_id",
)
