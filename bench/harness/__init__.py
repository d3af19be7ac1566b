"""The benchmark harness: systems side by side, row by row. See bench/README.md."""
