"""What can only a profiler's file tell, and can it be trusted?"""
