"""What is done about an unknown outcome, as far as it is a rule: probes, the reading of their answers, verdicts, and when to look again.
Pure.
"""
