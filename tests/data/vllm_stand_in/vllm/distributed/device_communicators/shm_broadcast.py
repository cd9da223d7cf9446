class MessageQueue:
    def __init__(self, context):
        self._queue = context.SimpleQueue()

    def enqueue(self, obj):
        self._queue.put(obj)

    def dequeue(self):
        return self._queue.get()
