"""All findings of one job, fused into one ranked diagnosis."""
