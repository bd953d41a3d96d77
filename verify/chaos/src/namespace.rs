//! A network and mounts of our own, in which links are cut and names are lost.
//!
//! The program starts itself anew below `unshare`: then everything that it starts
//! is in the same namespaces, its ports are its own, and whatever is done to
//! packets or mounts is gone with the last process. Nothing outside is touched.

use std::env;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use tidegate_testkit::servers::Directory;

/// Says that this is the process within.
const VARIABLE: &str = "TIDEGATE_CHAOS_NAMESPACE";

/// Brings loopback up and becomes the program.
const WITHIN: &str = r#"ip link set lo up && exec "$0" "$@""#;

const UNSHARE: [&str; 3] = ["--net", "--mount", "--propagation=private"];

/// Starts this program anew in namespaces of its own, and returns only if that
/// cannot be, or is so already.
pub fn enter() {
    let can = Command::new("unshare").args(UNSHARE).args(["sh", "-c", "ip link set lo up"]).output();
    if is_own() || !can.is_ok_and(|output| output.status.success()) {
        return;
    }
    let Ok(program) = env::current_exe() else { return };
    let mut command = Command::new("unshare");
    command.args(UNSHARE).args(["sh", "-c", WITHIN]).arg(program).args(env::args_os().skip(1));
    let error = command.env(VARIABLE, "1").exec();
    eprintln!("cannot start within namespaces: {error}");
}

/// Whether this process has namespaces of its own.
#[must_use]
pub fn is_own() -> bool {
    env::var_os(VARIABLE).is_some()
}

pub(crate) fn is_ready() -> Result<(), String> {
    if !is_own() {
        return Err("needs namespaces of its own (Linux, root, unshare and ip)".into());
    }
    match Command::new("iptables").args(["-w", "-S"]).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("iptables does not work: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("needs iptables: {error}")),
    }
}

/// Packets that vanish, until it is dropped.
#[derive(Debug)]
pub(crate) struct Cut(());

impl Cut {
    /// Nothing is cut yet.
    pub(crate) fn none() -> Cut {
        assert!(is_own(), "packets are dropped only in a network of our own");
        Cut(())
    }

    /// What comes to a port vanishes: what clients ask is not heard.
    pub(crate) fn requests(&self, port: u16) {
        drop_packets(&["-p", "tcp", "--dport", &port.to_string()]);
    }

    /// What comes from a port vanishes: what the server answers is not heard.
    pub(crate) fn replies(&self, port: u16) {
        drop_packets(&["-p", "tcp", "--sport", &port.to_string()]);
    }

    /// What addresses (such as `127.0.1.0/24`) send to a port, and are sent from it, vanishes.
    pub(crate) fn between(&self, addresses: &str, port: u16) {
        drop_packets(&["-s", addresses, "-p", "tcp", "--dport", &port.to_string()]);
        self.port_to(port, addresses);
    }

    /// What addresses are sent from a port vanishes.
    pub(crate) fn port_to(&self, port: u16, addresses: &str) {
        drop_packets(&["-d", addresses, "-p", "tcp", "--sport", &port.to_string()]);
    }

    /// What an address is sent vanishes.
    pub(crate) fn to(&self, address: Ipv4Addr) {
        drop_packets(&["-d", &address.to_string()]);
    }

    /// What an address sends vanishes.
    pub(crate) fn from(&self, address: Ipv4Addr) {
        drop_packets(&["-s", &address.to_string()]);
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        iptables(&["-F", "INPUT"]);
    }
}

fn drop_packets(which: &[&str]) {
    iptables(&[&["-A", "INPUT"], which, &["-j", "DROP"]].concat());
}

fn iptables(arguments: &[&str]) {
    let output = Command::new("iptables").arg("-w").args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("iptables: {error}"));
    assert!(output.status.success(), "iptables {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The file in which names are looked up, ours until it is dropped.
#[derive(Debug)]
pub(crate) struct Names {
    directory: Directory,
}

impl Names {
    /// One name for this machine, and no other.
    pub(crate) fn with(name: &str) -> Names {
        assert!(is_own(), "files are covered only by mounts of our own");
        let names = Names { directory: Directory::create() };
        names.set(&format!("127.0.0.1 {name}\n"));
        mount(&["--bind", &names.path(), "/etc/hosts"]);
        names
    }

    /// Written over in place: another file of that name would not be the mounted one.
    pub(crate) fn set(&self, text: &str) {
        self.directory.write("hosts", text);
    }

    fn path(&self) -> String {
        self.directory.path().join("hosts").display().to_string()
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        unmount("/etc/hosts");
    }
}

/// A disk of so many bytes, until it is dropped.
#[derive(Debug)]
pub(crate) struct SmallDisk {
    directory: Directory,
}

impl SmallDisk {
    pub(crate) fn of(bytes: u64) -> SmallDisk {
        assert!(is_own(), "disks are mounted only among mounts of our own");
        let directory = Directory::create();
        let place = directory.path().display().to_string();
        mount(&["-t", "tmpfs", "-o", &format!("size={bytes}"), "none", &place]);
        SmallDisk { directory }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Leaves no room on it; removing the file makes room again.
    pub(crate) fn fill(&self) -> io::Result<()> {
        let filled = fs::write(self.path().join("filler"), vec![0; 1 << 24]);
        match filled {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => Ok(()),
            Err(error) => Err(error),
            Ok(()) => Err(io::Error::other("the disk is larger than the filler")),
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        unmount(&self.directory.path().display().to_string());
    }
}

fn mount(arguments: &[&str]) {
    let output = Command::new("mount").args(arguments).output().unwrap_or_else(|error| panic!("mount: {error}"));
    assert!(output.status.success(), "mount {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn unmount(place: &str) {
    // What stays mounted goes with the namespace.
    let _ = Command::new("umount").args(["-l", place]).output();
}
