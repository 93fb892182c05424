"""What is measured on a live server: prompts, passes, stage timer, profiler."""
