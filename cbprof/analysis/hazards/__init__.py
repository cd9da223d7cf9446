"""Were the orderings kept that batching one ahead rests on?"""
