"""Measuring scripts. Nothing here decides a test."""
