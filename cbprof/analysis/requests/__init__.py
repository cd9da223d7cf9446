"""Where did the time of each request go?"""
