"""From a checkpoint's files to the modules of a stage: of what an architecture consists, its weights, how they run."""
