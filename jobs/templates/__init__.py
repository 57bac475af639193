"""Stage `templates`: every log event gets its template; templates are counted by job, role and node."""
