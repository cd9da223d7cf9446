import pickle


class MsgpackEncoder:
    def encode_into(self, obj, buf):
        return pickle.dumps(obj)
