"""Did a change work, and does a run keep its limits?"""
