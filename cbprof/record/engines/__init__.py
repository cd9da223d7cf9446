"""Engines that are recorded from outside, a folder each."""
