//! The one integration test binary: the real program against real processes.
