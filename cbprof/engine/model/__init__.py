"""The models: preset shapes, weights, paged attention, sampling."""
