"""Problems and plans as JSON, in and out, with every fault said in one sentence."""
