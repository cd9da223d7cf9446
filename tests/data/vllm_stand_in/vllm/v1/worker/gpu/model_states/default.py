class DefaultModelState:
    def prepare_attn(self):
        pass

    def prepare_inputs(self):
        return {}
