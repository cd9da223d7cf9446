"""How does a row read the keys and values of its request, which lie in pages?"""
