//! The audit log: who changed what, and who could not prove who they are.
//!
//! Entries go to the log under the target `tidegate::audit` and, with
//! `--audit FILE`, to a file of their own, a JSON object a line. A thread writes
//! the file, so a disk that hangs holds up no request; lines that find no room in
//! its queue are counted as lost.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use rustix::fs::OFlags;
use serde::Serialize;
use tokio::sync::oneshot;
use tracing::{error, info};

use crate::access::digest::Digest;
use crate::run::peer::Peer;

/// Lines that wait to be written.
const MAX_QUEUED: usize = 4_096;
/// Entries that are kept in memory, for the dashboard.
const MAX_RECENT: usize = 1_000;
/// Characters of a reason that are kept.
pub(crate) const MAX_REASON: usize = 200;
/// How long the end of the server waits for the last lines.
const LAST_LINES: Duration = Duration::from_secs(2);
/// The identity of what the server does by itself, such as following a file.
pub(crate) const SERVER: &str = "server";

/// What was done, or tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Action {
    Authenticate,
    /// A dashboard, or another client with a credential, began to watch.
    SignIn,
    PutPolicy,
    ReloadPolicy,
    ReloadTokens,
    Reset,
    Refund,
    AdminReset,
    AdminRefund,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum AuditOutcome {
    Done,
    Refused,
}

impl AuditOutcome {
    pub(crate) fn of(is_done: bool) -> AuditOutcome {
        if is_done { AuditOutcome::Done } else { AuditOutcome::Refused }
    }
}

/// The hashes of the policy before a change and after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PolicyChange {
    pub(crate) before: Digest,
    pub(crate) after: Digest,
}

/// One entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) peer: Option<Peer>,
    pub(crate) identity: &'a str,
    pub(crate) action: Action,
    pub(crate) outcome: AuditOutcome,
    pub(crate) policy: Option<PolicyChange>,
    /// Why, as the caller says.
    pub(crate) reason: Option<&'a str>,
}

/// An entry on its line.
#[derive(Serialize)]
struct Line<'a> {
    time: String,
    peer: Option<String>,
    identity: &'a str,
    action: Action,
    outcome: AuditOutcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy_before: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy_after: Option<String>,
}

/// Why there is no audit log.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the audit log {}: name a regular file that the server may append to", path.display())]
pub struct AuditError {
    path: PathBuf,
    source: io::Error,
}

/// Where entries go.
pub(crate) struct Audit {
    file: Option<SyncSender<Message>>,
    /// Lines that are not in the file.
    pub(crate) lost: Counter,
    has_lost: AtomicBool,
    /// The latest lines, the latest last.
    recent: Mutex<VecDeque<Box<[u8]>>>,
}

enum Message {
    Line(Vec<u8>),
    /// The file may have been moved away: a new one is begun.
    Reopen,
    /// Everything before is written.
    Flushed(oneshot::Sender<()>),
}

impl Audit {
    /// An audit log in the log, and in a file if there is to be one.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn start(path: Option<&Path>) -> Result<Audit, AuditError> {
        let lost = Counter::default();
        let file = match path {
            None => None,
            Some(path) => {
                let wrong = |source| AuditError { path: path.into(), source };
                let (sender, messages) = sync_channel(MAX_QUEUED);
                let writer = Writer { path: path.into(), file: open(path).map_err(wrong)?, lost: lost.clone() };
                let thread = thread::Builder::new().name("tidegate-audit".into());
                thread.spawn(move || writer.write(&messages)).map_err(wrong)?;
                Some(sender)
            }
        };
        Ok(Audit { file, lost, has_lost: AtomicBool::new(false), recent: Mutex::default() })
    }

    pub(crate) fn record(&self, entry: Entry<'_>) {
        let Entry { peer, identity, action, outcome, policy, reason } = entry;
        let (before, after) = (policy.map(|policy| policy.before), policy.map(|policy| policy.after));
        info!(
            target: "tidegate::audit",
            peer = peer.map(tracing::field::display),
            identity,
            ?action,
            ?outcome,
            reason,
            policy_before = before.map(tracing::field::display),
            policy_after = after.map(tracing::field::display),
        );
        let line = Line {
            time: jiff::Timestamp::now().to_string(),
            peer: peer.map(|peer| peer.to_string()),
            identity,
            action,
            outcome,
            reason,
            policy_before: before.map(|digest| digest.to_string()),
            policy_after: after.map(|digest| digest.to_string()),
        };
        // Our own types are always JSON.
        let mut line = serde_json::to_vec(&line).unwrap_or_default();
        self.remember(line.clone().into());
        line.push(b'\n');
        self.send(Message::Line(line));
    }

    fn remember(&self, line: Box<[u8]>) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.len() == MAX_RECENT {
            recent.pop_front();
        }
        recent.push_back(line);
    }

    /// The latest entries as a list in JSON, the latest first.
    pub(crate) fn recent(&self) -> Vec<u8> {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let lines: Vec<&[u8]> = recent.iter().rev().map(|line| &**line).collect();
        [&b"["[..], &lines.join(&b","[..]), b"]"].concat()
    }

    /// Begins a new file if the one before was moved away: a log that is rotated.
    pub(crate) fn reopen(&self) {
        self.send(Message::Reopen);
    }

    fn send(&self, message: Message) {
        let Some(file) = &self.file else { return };
        if file.try_send(message).is_err() {
            self.lost.inc();
            if !self.has_lost.swap(true, Ordering::Relaxed) {
                error!("the audit log is not written fast enough: lines are lost, and counted");
            }
        }
    }

    /// Waits until everything is in the file, but not for a disk that hangs.
    pub(crate) async fn flush(&self) {
        let (done, is_done) = oneshot::channel();
        if self.file.is_some() {
            self.send(Message::Flushed(done));
            let _ = tokio::time::timeout(LAST_LINES, is_done).await;
        }
    }
}

struct Writer {
    path: PathBuf,
    file: File,
    lost: Counter,
}

impl Writer {
    /// Until the server is gone.
    fn write(mut self, messages: &Receiver<Message>) {
        let mut has_failed = false;
        for message in messages {
            let written = match message {
                Message::Line(line) => self.file.write_all(&line).inspect_err(|_| {
                    self.lost.inc();
                }),
                Message::Reopen => open(&self.path).map(|file| self.file = file),
                Message::Flushed(done) => {
                    let _ = done.send(());
                    continue;
                }
            };
            // Once for all of a row of failures.
            if let Err(error) = &written
                && !has_failed
            {
                error!(path = %self.path.display(), %error, "cannot write the audit log; lost lines are counted");
            }
            has_failed = written.is_err();
        }
    }
}

/// Opens a regular file to append to, never through a symbolic link, and never waiting for the other end of a pipe.
fn open(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    Ok(file)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn entry(identity: &str) -> Entry<'_> {
        let (before, after) = (Digest::of(b"a"), Digest::of(b"b"));
        let policy = Some(PolicyChange { before, after });
        let peer = Some(Peer::Unix);
        Entry { peer, identity, action: Action::PutPolicy, outcome: AuditOutcome::Done, policy, reason: None }
    }

    #[tokio::test]
    async fn entries_are_lines_of_json_in_a_file_that_others_cannot_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        let audit = Audit::start(Some(&path)).unwrap();
        audit.record(entry("gate\"way\n"));
        audit.flush().await;
        std::fs::rename(&path, folder.path().join("audit.1")).unwrap();
        audit.reopen();
        audit.record(entry("later"));
        audit.flush().await;
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        let line: serde_json::Value = serde_json::from_str(&read("audit.1")).unwrap();
        assert_eq!((&line["identity"], &line["action"]), (&"gate\"way\n".into(), &"put-policy".into()));
        assert_eq!((&line["peer"], &line["outcome"]), (&"unix".into(), &"done".into()));
        assert_eq!(line["policy_after"].as_str().unwrap().len(), 64);
        assert!(line["time"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok(), "{line}");
        assert!(read("audit").contains("later"));
        let recent: serde_json::Value = serde_json::from_slice(&audit.recent()).unwrap();
        assert_eq!((&recent[0]["identity"], &recent[1]), (&"later".into(), &line));
        for _ in 0..MAX_RECENT {
            audit.record(entry("last"));
        }
        let recent: Vec<serde_json::Value> = serde_json::from_slice(&audit.recent()).unwrap();
        assert_eq!((recent.len(), &recent[MAX_RECENT - 1]["identity"]), (MAX_RECENT, &"last".into()));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(audit.lost.get(), 0);
    }

    #[test]
    fn only_a_regular_file_is_an_audit_log() {
        let folder = tempfile::tempdir().unwrap();
        let (target, link) = (folder.path().join("target"), folder.path().join("link"));
        std::fs::write(&target, "").unwrap();
        symlink(&target, &link).unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        for path in [link.as_path(), pipe.as_path(), folder.path(), Path::new("/dev/null")] {
            assert!(Audit::start(Some(path)).is_err(), "{}", path.display());
        }
    }

    #[tokio::test]
    async fn lines_that_cannot_be_written_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        std::fs::write(&path, "").unwrap();
        let (sender, messages) = sync_channel(MAX_QUEUED);
        let lost = Counter::default();
        // A file that is open for reading only takes no line.
        let writer = Writer { path: path.clone(), file: File::open(&path).unwrap(), lost: lost.clone() };
        let thread = thread::spawn(move || writer.write(&messages));
        let audit = Audit { file: Some(sender), lost, has_lost: AtomicBool::new(false), recent: Mutex::default() };
        audit.record(entry("a"));
        audit.record(entry("b"));
        audit.flush().await;
        assert_eq!(audit.lost.get(), 2);
        drop(audit);
        thread.join().unwrap();
    }
}
