"""Stage `similarity`: past failures that look alike, their families, and what sets them apart."""
