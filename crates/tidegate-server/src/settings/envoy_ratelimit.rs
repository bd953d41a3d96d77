//! The environment of envoyproxy/ratelimit as settings of this server: `--as envoy-ratelimit`.
//!
//! Names, defaults and meanings are those of its `src/settings/settings.go` of July 2026 (commit `f2fb157`). Each
//! variable becomes the default of a flag, is ignored for a reason that is told, or is refused with what to do. A
//! variable that has no effect there, such as those of Memcached beside Redis, is not mentioned.

use std::time::Duration;

/// What an environment comes to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Translated {
    /// Names of settings, and the values that they have unless flags say otherwise.
    pub(crate) settings: Vec<(&'static str, Vec<String>)>,
    /// What is told at the start.
    pub(crate) notices: Vec<String>,
    /// Why the server does not start.
    pub(crate) refused: Vec<String>,
}

/// Which value of a variable a sentence is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    Set,
    True,
    False,
}

use When::{False, Set, True};

const METRICS: &str = "metrics are at /metrics on PORT, under their own names: scrape them there";
const CONNECTIONS: &str = "requests share connections to Redis, and commands are pipelined without being told to";
const STARTUP: &str = "the server starts without Redis, and connects when Redis is there";

/// What is ignored, and why.
const IGNORED: [(&str, When, &str); 33] = [
    ("GRPC_MAX_CONNECTION_AGE", Set, "connections are not closed for their age"),
    ("GRPC_MAX_CONNECTION_AGE_GRACE", Set, "connections are not closed for their age"),
    ("FORCE_START_WITHOUT_INITIAL_CONFIG", True, "the server starts only with valid descriptor files"),
    ("USE_STATSD", True, METRICS),
    ("STATSD_HOST", Set, METRICS),
    ("STATSD_PORT", Set, METRICS),
    ("USE_DOG_STATSD", True, METRICS),
    ("USE_DOG_STATSD_MOGRIFIERS", Set, METRICS),
    ("STATS_FLUSH_INTERVAL", Set, METRICS),
    ("USE_PROMETHEUS", True, METRICS),
    ("PROMETHEUS_ADDR", Set, METRICS),
    ("PROMETHEUS_PATH", Set, METRICS),
    ("PROMETHEUS_MAPPER_YAML", Set, METRICS),
    ("PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", True, METRICS),
    ("DISABLE_STATS", True, METRICS),
    ("EXTRA_TAGS", Set, "add tags where metrics are scraped"),
    ("RUNTIME_IGNOREDOTFILES", False, "hidden files are never read"),
    ("EXPIRATION_JITTER_MAX_SECONDS", Set, "keys expire once nothing of them counts"),
    ("LOCAL_CACHE_SIZE_IN_BYTES", Set, "each check asks Redis: the server has no cache of refusals"),
    ("NEAR_LIMIT_RATIO", Set, "there is no statistic of requests near the limit"),
    ("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", False, "refused hits never count"),
    ("REDIS_POOL_SIZE", Set, CONNECTIONS),
    ("REDIS_PIPELINE_WINDOW", Set, CONNECTIONS),
    ("REDIS_PIPELINE_LIMIT", Set, CONNECTIONS),
    ("REDIS_CLUSTER_PIPELINE_PARALLELISM", Set, CONNECTIONS),
    ("REDIS_POOL_ON_EMPTY_BEHAVIOR", Set, CONNECTIONS),
    ("REDIS_STARTUP_INITIAL_INTERVAL", Set, STARTUP),
    ("REDIS_STARTUP_MAX_INTERVAL", Set, STARTUP),
    ("REDIS_STARTUP_MAX_ELAPSED_TIME", Set, STARTUP),
    ("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", True, "/readyz says whether Redis answers, /healthcheck does not"),
    ("REDIS_PERSECOND", True, "limits of a second are kept on REDIS_URL with all others"),
    ("MERGE_DOMAIN_CONFIG", True, "a domain in two files is an error at the start: join the files"),
    ("TRACING_ENABLED", True, "traces are sent by --otlp-traces, in a build with the feature otlp"),
];

/// The settings that an environment asks for. `is_given` says of a setting whether a flag, a variable of its own or the
/// settings file has it: then that counts, and not what stands here.
pub(crate) fn translate(variable: impl Fn(&str) -> Option<String>, is_given: impl Fn(&str) -> bool) -> Translated {
    let mut reader = Reader { variable, translated: Translated::default() };
    reader.listeners();
    reader.files();
    reader.answers();
    reader.logs();
    if !is_given("store") {
        reader.store();
    }
    if !["tokens", "admin_token", "admin_token_file", "tls_client_ca"].into_iter().any(&is_given) {
        // It has no credentials, and nothing to protect but its decisions and its port for debugging.
        reader.set("insecure_no_auth", "true");
        reader.set_all("anonymous", ["check", "metrics"]);
    }
    if !is_given("tls_certificate") && reader.is_true("GRPC_SERVER_USE_TLS") {
        reader.refuse(
            "GRPC_SERVER_USE_TLS",
            "start with --tls-certificate and --tls-key, by which all listeners speak TLS",
        );
    }
    reader.ignored();
    reader.translated
}

struct Reader<V> {
    variable: V,
    translated: Translated,
}

impl<V: Fn(&str) -> Option<String>> Reader<V> {
    /// A variable; one that is empty is not set.
    fn get(&self, name: &str) -> Option<String> {
        (self.variable)(name).filter(|value| !value.is_empty())
    }

    fn get_or(&self, name: &str, default: &str) -> String {
        self.get(name).unwrap_or_else(|| default.to_owned())
    }

    fn set(&mut self, name: &'static str, value: impl Into<String>) {
        self.translated.settings.push((name, vec![value.into()]));
    }

    fn set_all<const N: usize>(&mut self, name: &'static str, values: [&str; N]) {
        self.translated.settings.push((name, values.map(str::to_owned).into()));
    }

    fn refuse(&mut self, name: &str, what_to_do: &str) {
        self.translated.refused.push(format!("{name}: {what_to_do}"));
    }

    /// Whether it is true or false, as Go reads it.
    fn bool(&mut self, name: &str) -> Option<bool> {
        match self.get(name)?.as_str() {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
            other => {
                let what_to_do = format!("{other:?} is neither true nor false: write one of them");
                self.refuse(name, &what_to_do);
                None
            }
        }
    }

    fn is_true(&mut self, name: &str) -> bool {
        self.bool(name) == Some(true)
    }

    fn address(&mut self, name: &'static str, host: &str, (port, default): (&str, &str)) {
        let (host, number) = (self.get_or(host, "0.0.0.0"), self.get_or(port, default));
        if number.parse::<u16>().is_err() {
            return self.refuse(port, &format!("{number:?} is no port: write a number up to 65535"));
        }
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        self.set(name, format!("{host}:{number}"));
    }

    fn listeners(&mut self) {
        self.address("http", "HOST", ("PORT", "8080"));
        match self.get("GRPC_UDS") {
            Some(path) => self.set("grpc", format!("unix:{path}")),
            None => self.address("grpc", "GRPC_HOST", ("GRPC_PORT", "8081")),
        }
        self.address("debug", "DEBUG_HOST", ("DEBUG_PORT", "6070"));
        self.set("no_admin", "true");
    }

    /// Whether the root or the folder is watched, the files are those of the one folder.
    fn files(&mut self) {
        let config = self.get_or("CONFIG_TYPE", "FILE");
        if config != "FILE" {
            self.refuse("CONFIG_TYPE", "only FILE is supported: write the limits to files below RUNTIME_ROOT");
        }
        let root = self.get_or("RUNTIME_ROOT", "/srv/runtime_data/current");
        let folder = std::path::Path::new(&root)
            .join(self.get_or("RUNTIME_SUBDIRECTORY", ""))
            .join(self.get_or("RUNTIME_APPDIRECTORY", "config"));
        self.set("envoy_config", folder.display().to_string());
        // There, limits that come with descriptors have no cap.
        self.set("inline_max_count", u32::MAX.to_string());
    }

    fn answers(&mut self) {
        for (name, setting) in [
            ("SHADOW_MODE", "envoy_shadow"),
            ("QUOTA_MODE", "envoy_quota"),
            ("RESPONSE_DYNAMIC_METADATA", "envoy_metadata"),
        ] {
            if self.is_true(name) {
                self.set(setting, "true");
            }
        }
        if self.is_true("LIMIT_RESPONSE_HEADERS_ENABLED") {
            self.set("envoy_headers", "reference");
            let names = [("LIMIT", "Limit"), ("REMAINING", "Remaining"), ("RESET", "Reset")];
            let names =
                names.map(|(name, end)| self.get_or(&format!("LIMIT_{name}_HEADER"), &format!("RateLimit-{end}")));
            self.set("envoy_header_names", names.join(","));
        }
    }

    fn logs(&mut self) {
        let level = self.get_or("LOG_LEVEL", "WARN").to_ascii_lowercase();
        match level.as_str() {
            "panic" | "fatal" => self.set("log", "error"),
            "warning" => self.set("log", "warn"),
            "error" | "warn" | "info" | "debug" | "trace" => self.set("log", level),
            _ => self.refuse("LOG_LEVEL", "write one of panic, fatal, error, warn, info, debug, trace"),
        }
        if self.get_or("LOG_FORMAT", "text").eq_ignore_ascii_case("json") {
            self.set("log_format", "json");
        }
    }

    fn store(&mut self) {
        if self.get_or("BACKEND_TYPE", "redis") != "redis" {
            let what_to_do = "only redis is supported: set it and REDIS_URL, or start with --store memory";
            return self.refuse("BACKEND_TYPE", what_to_do);
        }
        let tls = self.is_true("REDIS_TLS");
        if let Some(url) = self.store_url(tls) {
            self.set("store", url);
        }
        if tls {
            for (name, setting) in [
                ("REDIS_TLS_CACERT", "store_tls_ca"),
                ("REDIS_TLS_CLIENT_CERT", "store_tls_certificate"),
                ("REDIS_TLS_CLIENT_KEY", "store_tls_key"),
            ] {
                if let Some(file) = self.get(name) {
                    self.set(setting, file);
                }
            }
            if self.is_true("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION") {
                let what_to_do =
                    "names of hosts are always verified: give Redis a certificate with its name, and leave this out";
                self.refuse("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", what_to_do);
            }
        }
        if let Some(prefix) = self.get("CACHE_KEY_PREFIX") {
            self.set("store_prefix", prefix);
        }
        if let Some(text) = self.get("REDIS_TIMEOUT") {
            match duration(&text) {
                Some(timeout) => self.set("store_deadline_ms", timeout.as_millis().max(1).to_string()),
                None => self.refuse("REDIS_TIMEOUT", "write a duration such as 10s or 150ms"),
            }
        }
    }

    /// The servers as a URL. Those of sentinels and clusters are lists, and each may be a URL itself.
    fn store_url(&mut self, tls: bool) -> Option<String> {
        let url = self.get_or("REDIS_URL", "/var/run/nutcracker/ratelimit.sock");
        let credentials = self.get("REDIS_AUTH").map(|auth| match auth.split_once(':') {
            Some((user, password)) => format!("{}:{}@", encoded(user), encoded(password)),
            None => format!(":{}@", encoded(&auth)),
        });
        let hosts: Vec<&str> = url.split(',').map(|host| host.strip_prefix("redis://").unwrap_or(host)).collect();
        let own = hosts.iter().find_map(|host| Some(host.rsplit_once('@')?.0));
        let bare: Vec<&str> = hosts.iter().map(|host| host.rsplit_once('@').map_or(*host, |(_, host)| host)).collect();
        let credentials = credentials.or_else(|| own.map(|own| format!("{own}@"))).unwrap_or_default();
        let scheme = if tls { "rediss" } else { "redis" };
        match (self.get_or("REDIS_TYPE", "SINGLE").to_ascii_lowercase().as_str(), bare.as_slice()) {
            ("single", _) => match self.get_or("REDIS_SOCKET_TYPE", "unix").as_str() {
                "tcp" => Some(format!("{scheme}://{credentials}{}", bare.join(","))),
                "unix" => {
                    let (user, password) = credentials.trim_end_matches('@').split_once(':').unwrap_or_default();
                    let query = match (user, password) {
                        ("", "") => String::new(),
                        ("", password) => format!("?pass={password}"),
                        (user, password) => format!("?user={user}&pass={password}"),
                    };
                    Some(format!("redis+unix://{url}{query}"))
                }
                _ => {
                    self.refuse("REDIS_SOCKET_TYPE", "write tcp or unix");
                    None
                }
            },
            ("cluster", nodes) => Some(format!("{scheme}+cluster://{credentials}{}", nodes.join(","))),
            ("sentinel", [master, sentinels @ ..]) if !sentinels.is_empty() => {
                if self.get("REDIS_SENTINEL_AUTH").is_some() {
                    let what_to_do = "a password of the sentinels themselves is not supported: leave them without one";
                    self.refuse("REDIS_SENTINEL_AUTH", what_to_do);
                }
                Some(format!("{scheme}+sentinel://{credentials}{}/{master}", sentinels.join(",")))
            }
            ("sentinel", _) => {
                self.refuse(
                    "REDIS_URL",
                    "write the name of the master and then the sentinels: mymaster,host:26379,host:26379",
                );
                None
            }
            _ => {
                self.refuse("REDIS_TYPE", "write single, sentinel or cluster");
                None
            }
        }
    }

    fn ignored(&mut self) {
        for (name, when, why) in IGNORED {
            let is_meant = match when {
                Set => self.get(name).is_some(),
                True => self.is_true(name),
                False => self.bool(name) == Some(false),
            };
            if is_meant {
                self.translated.notices.push(format!("{name} is ignored: {why}"));
            }
        }
    }
}

/// A text as a part of a URL.
fn encoded(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// A duration as Go spells it: `10s`, `1h30m`, `1.5ms`.
fn duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let (mut rest, mut sum) = (text, Duration::ZERO);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, more) = rest.split_at(digits);
        let end = more.find(|c: char| c.is_ascii_digit()).unwrap_or(more.len());
        let (unit, more) = more.split_at(end);
        let seconds = match unit {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3_600.0,
            _ => return None,
        };
        sum = sum.checked_add(Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()?)?;
        rest = more;
    }
    (!text.is_empty()).then_some(sum)
}

#[cfg(test)]
mod tests;
