"""What holds for every test."""

import signal

# A shell starts background jobs (`make test &`, a CI runner) with SIGINT ignored, and whoever is started by
# one that ignores a signal ignores it too: no test could then stop its server with it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
