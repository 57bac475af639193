"""Pictures as inline SVG: plain functions from values to markup, with a text alternative on each."""
