"""Several ranks side by side: who idles, who is late, what do the others wait for?"""
