class OutputProcessor:
    def __init__(self):
        self.tokens = {}

    def process_outputs(self, engine_core_outputs):
        for output in engine_core_outputs.outputs:
            self.tokens.setdefault(output.request_id, []).extend(output.new_token_ids)
        return [output.request_id for output in engine_core_outputs.outputs if output.finish_reason]
