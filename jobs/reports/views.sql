-- Views over the gold tables, for people who ask in SQL. They hold for DuckDB and for Spark SQL alike.

-- one row a job: who, how it ended, what it cost, what the diagnosis says
CREATE OR REPLACE TEMPORARY VIEW v_jobs AS
SELECT
  j.job_id, j.name, j.user AS user_name, j.cluster, j.partition AS queue, j.state, j.started_at, j.ended_at, j.n_nodes, COALESCE(j.n_gpus, j.world_size) AS n_gpus, j.lineage_id,
  (EXTRACT(DAY FROM j.ended_at - j.started_at) * 86400 + EXTRACT(HOUR FROM j.ended_at - j.started_at) * 3600
    + EXTRACT(MINUTE FROM j.ended_at - j.started_at) * 60 + CAST(EXTRACT(SECOND FROM j.ended_at - j.started_at) AS DOUBLE)) / 3600 AS run_hours,
  (EXTRACT(DAY FROM j.ended_at - j.started_at) * 86400 + EXTRACT(HOUR FROM j.ended_at - j.started_at) * 3600
    + EXTRACT(MINUTE FROM j.ended_at - j.started_at) * 60 + CAST(EXTRACT(SECOND FROM j.ended_at - j.started_at) AS DOUBLE)) / 3600
    * COALESCE(j.n_gpus, j.world_size) AS gpu_hours,
  j.state IN ('FAILED', 'NODE_FAIL', 'OUT_OF_MEMORY', 'BOOT_FAIL') AS is_failed,
  d.symptom, d.cause_class, d.cause_confidence, d.spatial_signal, d.onset_at, d.onset_iteration, d.onset_phase, d.top_node, d.top_score,
  d.n_candidates, d.n_baselines, d.is_verified
FROM training_jobs j LEFT JOIN diagnoses d ON d.job_id = j.job_id;

-- one row a template of a failed job: where it stands against the library of normal templates
CREATE OR REPLACE TEMPORARY VIEW v_failed_templates AS
SELECT
  c.job_id, c.template_id, t.template, t.alert, SUM(c.n_events) AS n_events, MIN(c.first_at) AS first_at, COUNT(DISTINCT c.node) AS n_nodes,
  COALESCE(MAX(CASE WHEN n.is_normal THEN 1 ELSE 0 END), 0) = 1 AS is_normal
FROM job_templates c
JOIN v_jobs j ON j.job_id = c.job_id AND j.is_failed
JOIN templates t ON t.template_id = c.template_id
LEFT JOIN normal_templates n ON n.template_id = c.template_id
GROUP BY c.job_id, c.template_id, t.template, t.alert;

-- one row a machine: its record over 28 days, and the failed jobs that name it first with a score of 0.5 or more
CREATE OR REPLACE TEMPORARY VIEW v_machines AS
SELECT
  m.node, m.n_jobs, m.exposure_days, m.n_failures, m.failures_per_day, m.low, m.high, m.q_value, m.is_lemon, m.availability, m.down_days,
  COALESCE(f.n_named_first, 0) AS n_named_first, COALESCE(f.n_users, 0) AS n_users
FROM reliability_nodes m
LEFT JOIN (
  SELECT top_node, COUNT(*) AS n_named_first, COUNT(DISTINCT user_name) AS n_users
  FROM v_jobs WHERE is_failed AND top_score >= 0.5 GROUP BY top_node
) f ON f.top_node = m.node;

-- one row a week: failures per node-day with the exact 95 % interval; ready for a time panel
CREATE OR REPLACE TEMPORARY VIEW v_weekly AS
SELECT CAST(scope AS DATE) AS week, value AS failures_per_node_day, low, high, n_events AS n_failures, n_censored, exposure AS node_days, is_small
FROM reliability_figures
WHERE figure = 'failures_per_node_day_week';

-- one row a task: what its attempts made of the time
CREATE OR REPLACE TEMPORARY VIEW v_tasks AS
SELECT
  lineage_id, n_attempts, n_failures, is_censored, n_nodes, wall_s / 3600 AS wall_hours, queue_s / 3600 AS queue_hours, lost_s / 3600 AS lost_hours,
  ettr_measured, ettr_expected, ettr_difference
FROM reliability_lineages;
