"""What one worker process does: jobs, suspects, rescue."""
