"""The only room with task groups: performs what core decides, appends what happened."""
