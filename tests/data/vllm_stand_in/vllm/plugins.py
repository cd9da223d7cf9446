from importlib.metadata import entry_points

plugins_loaded = False


def load_general_plugins():
    global plugins_loaded  # noqa: PLW0603
    if not plugins_loaded:
        plugins_loaded = True
        for plugin in entry_points(group="vllm.general_plugins"):
            plugin.load()()
