"""What the tests share: builders of values, scripted sensors, readers of the documents."""
