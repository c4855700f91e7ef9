"""Tables that were away when their batch was committed get their rows later, beside the batches that go on."""
