"""Sections of the file, declared (`gateway.core.setting`) and resolved; `gateway.config.model` puts them together.
Durations are seconds, sizes are bytes. What is kept out of a `repr` is a secret.
"""
