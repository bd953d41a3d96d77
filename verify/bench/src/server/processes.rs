//! The servers, each in a process of its own: built or installed if they are missing.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tidegate_testkit::servers::Server;

use super::wire::{Wire, WireRequest};

pub(super) const TIDEGATE: &str = "tidegate";
pub(super) const THROTTLECRAB: &str = "throttlecrab-server";
pub(super) const REDIS: &str = "redis-server, token bucket in Lua";
pub(super) const LEAST: &str = "redis-server, INCR and PEXPIRE in Lua";

/// What is installed, if it is not there.
const THROTTLECRAB_VERSION: &str = "0.4.40";
/// How long a server may take until it listens.
const START_TIMEOUT: Duration = Duration::from_secs(20);

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
    pub(super) request: WireRequest,
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

/// Gets and starts all contestants that speak a protocol.
pub(super) fn start_all(wire: Wire) -> Result<Vec<Contestant>, String> {
    let mut contestants = vec![tidegate(wire)?, throttlecrab(wire)?];
    if wire == Wire::Resp {
        contestants.push(redis(REDIS, TOKEN_BUCKET, "100 100"));
        contestants.push(redis(LEAST, COUNTER, "100"));
    }
    Ok(contestants)
}

fn tidegate(wire: Wire) -> Result<Contestant, String> {
    let port = unused_port();
    let (flag, request) = match wire {
        Wire::Resp => ("--resp", command("CL.THROTTLE KEY 99 100 1")),
        Wire::Http => {
            let body = r#"{"key":"KEY","limit":"100/s"}"#.into();
            ("--http", WireRequest::Post { path: "/v1/check", body })
        }
        Wire::Grpc => {
            let path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
            ("--grpc", WireRequest::Call { path, message: envoys_request })
        }
    };
    let address = format!("127.0.0.1:{port}");
    let mut arguments = vec!["serve", flag, &address, "--log", "warn"];
    if flag != "--http" {
        arguments.extend(["--http", "127.0.0.1:0"]);
    }
    started(TIDEGATE, &built_tidegate()?, &arguments, port, request)
}

fn throttlecrab(wire: Wire) -> Result<Contestant, String> {
    let port = unused_port();
    let (flag, request) = match wire {
        Wire::Resp => ("redis", command("THROTTLE KEY 100 100 1")),
        Wire::Http => {
            let body = r#"{"key":"KEY","max_burst":100,"count_per_period":100,"period":1,"quantity":1}"#.into();
            ("http", WireRequest::Post { path: "/throttle", body })
        }
        Wire::Grpc => {
            let path = "/throttlecrab.RateLimiter/Throttle";
            ("grpc", WireRequest::Call { path, message: throttlecrabs_request })
        }
    };
    // Its default store slows down beyond as many keys as it was made for.
    let arguments =
        format!("--{flag} --{flag}-host 127.0.0.1 --{flag}-port {port} --store periodic --store-capacity 1000000");
    let arguments: Vec<&str> = arguments.split(' ').chain(["--log-level", "error"]).collect();
    started(THROTTLECRAB, &installed_throttlecrab()?, &arguments, port, request)
}

fn redis(name: &'static str, script: &str, arguments: &str) -> Contestant {
    let server = Server::start();
    let hash = server.command(&["SCRIPT", "LOAD", script]).text();
    let request = command(&format!("EVALSHA {hash} 1 KEY {arguments}"));
    Contestant { name, address: server.address(), request, process: Process::Redis(server) }
}

fn command(words: &str) -> WireRequest {
    WireRequest::Command(words.split(' ').map(str::to_owned).collect())
}

/// One descriptor with a limit of its own, 100 a second.
fn envoys_request(key: &str) -> Vec<u8> {
    let entry = [field(1, b"user"), field(2, key.as_bytes())].concat();
    let limit = [0x08, 100, 0x10, 1];
    let descriptor = [field(1, &entry), field(2, &limit)].concat();
    [field(1, b"bench"), field(2, &descriptor)].concat()
}

fn throttlecrabs_request(key: &str) -> Vec<u8> {
    [&field(1, key.as_bytes())[..], &[0x10, 100, 0x18, 100, 0x20, 1, 0x28, 1]].concat()
}

/// A field of a message that is text or a message.
fn field(number: u8, value: &[u8]) -> Vec<u8> {
    let length = u8::try_from(value.len()).ok().filter(|length| *length < 128).expect("short fields");
    [&[number << 3 | 2, length], value].concat()
}

fn started(
    name: &'static str,
    program: &Path,
    arguments: &[&str],
    port: u16,
    request: WireRequest,
) -> Result<Contestant, String> {
    let child = Command::new(program).args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).spawn();
    let child = child.map_err(|error| format!("cannot start {}: {error}", program.display()))?;
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let contestant = Contestant { name, address, request, process: Process::Ours(child) };
    let began = Instant::now();
    while TcpStream::connect(address).is_err() {
        if began.elapsed() > START_TIMEOUT {
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
        .args(["build", "--profile", "dist", "--package", "tidegate-server", "--target-dir"])
        .arg(target))?;
    Ok(target.join("dist/tidegate"))
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
