//! `tidegate token`: a fresh token, and the lines of the tokens file that make it known.
//!
//! The lines go to standard output, the token to standard error: the file is
//! appended to, and the token is in no file.

use std::io;
use std::process::ExitCode;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use clap::Args;
use ring::rand::{SecureRandom, SystemRandom};

use super::{complain, print, warn};
use crate::access::check_name;
use crate::access::digest::Digest;
use crate::settings::rights::Right;

/// Random bytes of a token.
const LENGTH: usize = 32;

#[derive(Args)]
pub(super) struct Arguments {
    /// The name, as the audit log has it and as a user of RESP
    #[arg(long, value_parser = check_name)]
    name: String,
    /// What the token permits; may be given several times
    #[arg(long, value_name = "RIGHT", value_delimiter = ',', required = true)]
    rights: Vec<Right>,
}

pub(super) fn run(Arguments { name, rights }: &Arguments) -> ExitCode {
    let mut bytes = [0; LENGTH];
    if SystemRandom::new().fill(&mut bytes).is_err() {
        return complain(&io::Error::other("the system gives no random numbers"));
    }
    let token = URL_SAFE_NO_PAD.encode(bytes);
    let rights: Vec<String> = rights.iter().map(|right| format!("\"{right}\"")).collect();
    let (sha256, rights) = (Digest::of(token.as_bytes()), rights.join(", "));
    let printed = print(|out| writeln!(out, "[[token]]\nname = {name:?}\nsha256 = \"{sha256}\"\nrights = [{rights}]"));
    if printed == ExitCode::SUCCESS {
        warn(&format_args!("The token, which is not shown again: {token}"));
    }
    printed
}
