"""One function per workflow rule: reads files, calls the layers below, writes records."""
