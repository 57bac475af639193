"""How reliable a fleet is: rates with exact intervals, time to failure, productive time, lost work, machines that stand out."""
