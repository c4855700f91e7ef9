"""Values of a column: from JSON to Arrow and back, exactly."""
