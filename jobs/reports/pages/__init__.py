"""One module a page: rows in, HTML, JSON and Markdown out."""
