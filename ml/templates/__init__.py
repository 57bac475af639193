"""From log lines to templates: masks, hashes, mining, alerts, the normal library."""
