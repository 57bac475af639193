"""Stage `baselines`: the successful jobs whose configuration matches."""
