"""From a manifest to one row per episode and per stream."""
