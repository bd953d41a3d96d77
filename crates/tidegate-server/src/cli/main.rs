//! The binary `tidegate`.

use std::process::ExitCode;

fn main() -> ExitCode {
    tidegate_server::run()
}
