//! The command line tool; everything it does is in the library.

fn main() -> std::process::ExitCode {
    lockscope::cli::run()
}
