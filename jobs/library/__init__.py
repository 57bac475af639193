"""Stage `library`: what successful jobs across the fleet print is normal."""
