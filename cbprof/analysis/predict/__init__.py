"""What would asynchronous batching, or a change, bring?"""
