"""Gavel (OSDI 2020): heterogeneity-aware policies as linear programs over time fractions, realised in rounds."""
