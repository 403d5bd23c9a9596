"""A sensor as JSON: the arguments of its constructor, what it takes from elsewhere, and the sensor built from that."""
