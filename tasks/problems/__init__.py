"""Problems: what they are, where they come from, how they are shown to a model and read back from its answer."""
