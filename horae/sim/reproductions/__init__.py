"""Figures and tables of the papers, computed again by the policies that run in production, and an honest verdict.

`catalogue.py` lists them; a module a paper computes them.
"""
