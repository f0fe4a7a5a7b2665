"""The rules of reconciliation: requests of probes, the reading of their answers, verdicts, and when to look again.
Pure.
"""
