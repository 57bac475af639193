"""Static pages: the night, a page a job, machines, failure families, reliability, the library, data quality."""
