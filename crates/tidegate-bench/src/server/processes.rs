//! The servers, each in a process of its own: built or installed if they are missing.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tidegate_testkit::servers::Server;

pub(super) const TIDEGATE: &str = "tidegate";
pub(super) const THROTTLECRAB: &str = "throttlecrab-server";
pub(super) const REDIS: &str = "redis-server, token bucket in Lua";
pub(super) const LEAST: &str = "redis-server, INCR and PEXPIRE in Lua";

/// What is installed, if it is not there.
const THROTTLECRAB_VERSION: &str = "0.4.40";
/// How long a server may take until it listens.
const PATIENCE: Duration = Duration::from_secs(20);

/// A bucket as people write it: floats, a hash, the server's time.
const TOKEN_BUCKET: &str = r"
local burst, rate = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local state = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens, at = tonumber(state[1]) or burst, tonumber(state[2]) or now
tokens = math.min(burst, tokens + math.max(0, now - at) * rate)
local limited, retry_after = 1, math.ceil((1 - tokens) / rate)
if tokens >= 1 then
    tokens, limited, retry_after = tokens - 1, 0, -1
end
redis.call('HSET', KEYS[1], 'tokens', tokens, 'at', now)
redis.call('PEXPIRE', KEYS[1], math.ceil(burst / rate * 1000))
return {limited, burst, math.floor(tokens), retry_after, math.ceil((burst - tokens) / rate)}
";

/// The least that counts and expires; its answer is padded to the same length.
const COUNTER: &str = r"
local count = redis.call('INCR', KEYS[1])
if count == 1 then redis.call('PEXPIRE', KEYS[1], 1000) end
return {count > tonumber(ARGV[1]) and 1 or 0, ARGV[1] + 0, 0, -1, 1}
";

/// A server that takes part.
pub(super) struct Contestant {
    pub(super) name: &'static str,
    pub(super) address: SocketAddr,
    /// A command; the key goes where `KEY` stands.
    command: Vec<String>,
    process: Process,
}

enum Process {
    Ours(Child),
    Redis(Server),
}

impl Drop for Process {
    fn drop(&mut self) {
        match self {
            Process::Ours(child) => {
                let _ = child.kill();
                let _ = child.wait();
            }
            // It ends itself.
            Process::Redis(_) => {}
        }
    }
}

impl Contestant {
    /// The words of a question about a key.
    pub(super) fn words<'a>(&'a self, key: &'a str) -> Vec<&'a str> {
        self.command.iter().map(|word| if word == "KEY" { key } else { word }).collect()
    }

    /// What all its threads have had of the processors.
    pub(super) fn processor_nanos(&self) -> f64 {
        let id = match &self.process {
            Process::Ours(child) => child.id(),
            Process::Redis(server) => server.process_id(),
        };
        let tasks = fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().filter_map(Result::ok);
        let nanos = tasks.filter_map(|task| {
            let times = fs::read_to_string(task.path().join("schedstat")).ok()?;
            times.split_whitespace().next()?.parse::<f64>().ok()
        });
        nanos.sum()
    }
}

/// Gets and starts everybody.
pub(super) fn start_all() -> Result<Vec<Contestant>, String> {
    let port = unused_port();
    let tidegate = built_tidegate()?;
    let arguments = ["serve", "--http", "127.0.0.1:0", "--resp", &format!("127.0.0.1:{port}"), "--log", "warn"];
    let tidegate = started(TIDEGATE, &tidegate, &arguments, port, "CL.THROTTLE KEY 99 100 1")?;
    let port = unused_port();
    let rival = installed_throttlecrab()?;
    // Its default store slows down beyond as many keys as it was made for.
    let arguments =
        format!("--redis --redis-host 127.0.0.1 --redis-port {port} --store periodic --store-capacity 1000000");
    let arguments: Vec<&str> = arguments.split(' ').chain(["--log-level", "error"]).collect();
    let throttlecrab = started(THROTTLECRAB, &rival, &arguments, port, "THROTTLE KEY 100 100 1")?;
    let redis = |name, script, arguments: &str| {
        let server = Server::start();
        let hash = server.command(&["SCRIPT", "LOAD", script]).text();
        let command = format!("EVALSHA {hash} 1 KEY {arguments}").split(' ').map(str::to_owned).collect();
        Contestant { name, address: server.address(), command, process: Process::Redis(server) }
    };
    Ok(vec![tidegate, throttlecrab, redis(REDIS, TOKEN_BUCKET, "100 100"), redis(LEAST, COUNTER, "100")])
}

fn started(
    name: &'static str,
    program: &Path,
    arguments: &[&str],
    port: u16,
    command: &str,
) -> Result<Contestant, String> {
    let child = Command::new(program).args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).spawn();
    let child = child.map_err(|error| format!("cannot start {}: {error}", program.display()))?;
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let command = command.split(' ').map(str::to_owned).collect();
    let contestant = Contestant { name, address, command, process: Process::Ours(child) };
    let began = Instant::now();
    while TcpStream::connect(address).is_err() {
        if began.elapsed() > PATIENCE {
            return Err(format!("{name} does not listen on {address}"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(contestant)
}

fn unused_port() -> u16 {
    let socket = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    socket.expect("a free port").port()
}

/// The server of this workspace, built where this program was.
fn built_tidegate() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let target = own.parent().and_then(Path::parent).ok_or("this program is in no target directory")?;
    run(Command::new("cargo")
        .args(["build", "--release", "--package", "tidegate-server", "--target-dir"])
        .arg(target))?;
    Ok(target.join("release/tidegate"))
}

fn installed_throttlecrab() -> Result<PathBuf, String> {
    let root = workspace().join("target/rivals");
    let program = root.join("bin/throttlecrab-server");
    if !program.exists() {
        // Its messages are generated when it is built.
        if Command::new("protoc").arg("--version").output().is_err() {
            run(Command::new("apt-get").args(["install", "-y", "--no-install-recommends", "protobuf-compiler"]))
                .map_err(|failure| format!("{THROTTLECRAB} cannot be built without protoc: install it ({failure})"))?;
        }
        let arguments = ["install", "throttlecrab-server", "--version", THROTTLECRAB_VERSION, "--root"];
        run(Command::new("cargo").args(arguments).arg(&root))?;
    }
    Ok(program)
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn run(command: &mut Command) -> Result<(), String> {
    let status = command.current_dir(workspace()).status().map_err(|error| format!("{command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?} failed")) }
}
