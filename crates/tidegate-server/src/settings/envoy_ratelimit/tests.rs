//! Environments, and what they come to.

use super::*;

fn of(environment: &[(&str, &str)]) -> Translated {
    of_given(environment, &[])
}

fn of_given(environment: &[(&str, &str)], given: &[&str]) -> Translated {
    let variable = |name: &str| environment.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned());
    translate(variable, |name| given.contains(&name))
}

fn setting(translated: &Translated, name: &str) -> Option<String> {
    translated.settings.iter().find(|(set, _)| *set == name).map(|(_, values)| values.join(","))
}

#[test]
fn defaults_are_those_of_the_reference_service() {
    let translated = of(&[]);
    let expected = [
        ("http", "0.0.0.0:8080"),
        ("grpc", "0.0.0.0:8081"),
        ("debug", "0.0.0.0:6070"),
        ("no_admin", "true"),
        ("envoy_config", "/srv/runtime_data/current/config"),
        ("inline_max_count", "4294967295"),
        ("log", "warn"),
        ("store", "redis+unix:///var/run/nutcracker/ratelimit.sock"),
        ("insecure_no_auth", "true"),
        ("anonymous", "check,metrics"),
    ];
    let expected: Vec<(&str, String)> = expected.into_iter().map(|(name, value)| (name, value.to_owned())).collect();
    let settings: Vec<(&str, String)> =
        translated.settings.iter().map(|(name, values)| (*name, values.join(","))).collect();
    assert_eq!(settings, expected);
    assert_eq!((translated.notices, translated.refused), (vec![], vec![]));
}

#[test]
fn each_variable_sets_what_it_means() {
    for (environment, name, value) in [
        (&[("HOST", "127.0.0.1"), ("PORT", "18080")][..], "http", Some("127.0.0.1:18080")),
        (&[("HOST", "::")], "http", Some("[::]:8080")),
        (&[("GRPC_HOST", "127.0.0.1"), ("GRPC_PORT", "0")], "grpc", Some("127.0.0.1:0")),
        (&[("GRPC_UDS", "/tmp/ratelimit.sock"), ("GRPC_PORT", "1")], "grpc", Some("unix:/tmp/ratelimit.sock")),
        (&[("DEBUG_HOST", "localhost"), ("DEBUG_PORT", "7")], "debug", Some("localhost:7")),
        (
            &[("RUNTIME_ROOT", "/data"), ("RUNTIME_SUBDIRECTORY", "ratelimit")],
            "envoy_config",
            Some("/data/ratelimit/config"),
        ),
        (&[("RUNTIME_ROOT", "/data"), ("RUNTIME_APPDIRECTORY", "app")], "envoy_config", Some("/data/app")),
        (&[("SHADOW_MODE", "true")], "envoy_shadow", Some("true")),
        (&[("SHADOW_MODE", "F")], "envoy_shadow", None),
        (&[("QUOTA_MODE", "1")], "envoy_quota", Some("true")),
        (&[("RESPONSE_DYNAMIC_METADATA", "True")], "envoy_metadata", Some("true")),
        (&[("LIMIT_RESPONSE_HEADERS_ENABLED", "true")], "envoy_headers", Some("reference")),
        (&[("LIMIT_LIMIT_HEADER", "X-Limit")], "envoy_header_names", None),
        (
            &[("LIMIT_RESPONSE_HEADERS_ENABLED", "true"), ("LIMIT_RESET_HEADER", "X-Reset")],
            "envoy_header_names",
            Some("RateLimit-Limit,RateLimit-Remaining,X-Reset"),
        ),
        (&[("LOG_LEVEL", "DEBUG")], "log", Some("debug")),
        (&[("LOG_LEVEL", "fatal")], "log", Some("error")),
        (&[("LOG_FORMAT", "JSON")], "log_format", Some("json")),
        (&[("LOG_FORMAT", "text")], "log_format", None),
        (&[("CACHE_KEY_PREFIX", "edge:")], "store_prefix", Some("edge:")),
        (&[("REDIS_TIMEOUT", "1m0.5s")], "store_deadline_ms", Some("60500")),
        (&[("REDIS_TIMEOUT", "150us")], "store_deadline_ms", Some("1")),
        (&[("REDIS_TLS", "true"), ("REDIS_TLS_CACERT", "ca.pem")], "store_tls_ca", Some("ca.pem")),
        (&[("REDIS_TLS_CACERT", "ca.pem")], "store_tls_ca", None),
        (&[("PORT", "")], "http", Some("0.0.0.0:8080")),
    ] {
        let translated = of(environment);
        assert_eq!(setting(&translated, name).as_deref(), value, "{environment:?}");
        assert_eq!(translated.refused, Vec::<String>::new(), "{environment:?}");
    }
}

#[test]
fn stores_are_named_by_urls() {
    let tcp = ("REDIS_SOCKET_TYPE", "tcp");
    let of_type = |kind| ("REDIS_TYPE", kind);
    for (environment, url) in [
        (&[tcp, ("REDIS_URL", "redis:6379")][..], "redis://redis:6379"),
        (&[tcp, ("REDIS_URL", "redis:6379"), ("REDIS_AUTH", "p@ss:w/rd")], "redis://p%40ss:w%2Frd@redis:6379"),
        (&[tcp, ("REDIS_URL", "redis:6379"), ("REDIS_AUTH", "secret")], "redis://:secret@redis:6379"),
        (&[tcp, ("REDIS_URL", "redis://u:p@redis:6379"), ("REDIS_TLS", "t")], "rediss://u:p@redis:6379"),
        (&[("REDIS_URL", "/run/redis.sock"), ("REDIS_AUTH", "s")], "redis+unix:///run/redis.sock?pass=s"),
        (&[of_type("CLUSTER"), ("REDIS_URL", "a:1,b:2")], "redis+cluster://a:1,b:2"),
        (
            &[of_type("cluster"), ("REDIS_URL", "redis://u:p@a:1,redis://u:p@b:2"), ("REDIS_TLS", "true")],
            "rediss+cluster://u:p@a:1,b:2",
        ),
        (
            &[of_type("Sentinel"), ("REDIS_URL", "mymaster,a:1,b:2"), ("REDIS_AUTH", "s")],
            "redis+sentinel://:s@a:1,b:2/mymaster",
        ),
    ] {
        let translated = of(environment);
        assert_eq!(setting(&translated, "store").as_deref(), Some(url), "{environment:?}");
        assert_eq!(translated.refused, Vec::<String>::new(), "{environment:?}");
        assert!(tidegate_redis::Servers::parse(url).is_ok(), "{url}");
    }
}

#[test]
fn what_is_not_supported_is_refused_with_what_to_do() {
    for (environment, message) in [
        (
            &[("BACKEND_TYPE", "memcache")][..],
            "BACKEND_TYPE: only redis is supported: set it and REDIS_URL, or start with --store memory",
        ),
        (
            &[("CONFIG_TYPE", "GRPC_XDS_SOTW")],
            "CONFIG_TYPE: only FILE is supported: write the limits to files below RUNTIME_ROOT",
        ),
        (&[("REDIS_TYPE", "ring")], "REDIS_TYPE: write single, sentinel or cluster"),
        (&[("REDIS_SOCKET_TYPE", "udp")], "REDIS_SOCKET_TYPE: write tcp or unix"),
        (
            &[("REDIS_TYPE", "sentinel"), ("REDIS_URL", "host:26379")],
            "REDIS_URL: write the name of the master and then the sentinels: mymaster,host:26379,host:26379",
        ),
        (
            &[("REDIS_TYPE", "sentinel"), ("REDIS_URL", "m,host:26379"), ("REDIS_SENTINEL_AUTH", "s3cret")],
            "REDIS_SENTINEL_AUTH: a password of the sentinels themselves is not supported: leave them without one",
        ),
        (&[("REDIS_TIMEOUT", "soon")], "REDIS_TIMEOUT: write a duration such as 10s or 150ms"),
        (&[("PORT", "http")], "PORT: \"http\" is no port: write a number up to 65535"),
        (&[("SHADOW_MODE", "yes")], "SHADOW_MODE: \"yes\" is neither true nor false: write one of them"),
        (&[("LOG_LEVEL", "loud")], "LOG_LEVEL: write one of panic, fatal, error, warn, info, debug, trace"),
        (
            &[("GRPC_SERVER_USE_TLS", "true")],
            "GRPC_SERVER_USE_TLS: start with --tls-certificate and --tls-key, by which all listeners speak TLS",
        ),
        (
            &[("REDIS_TLS", "true"), ("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", "true")],
            "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION: names of hosts are always verified: give Redis a certificate with \
             its name, and leave this out",
        ),
    ] {
        assert_eq!(of(environment).refused, [message], "{environment:?}");
    }
}

#[test]
fn what_is_ignored_is_told_with_the_reason() {
    let environment = IGNORED.map(|(name, when, _)| (name, if when == False { "false" } else { "true" }));
    let told = of(&environment).notices;
    let expected = IGNORED.map(|(name, _, why)| format!("{name} is ignored: {why}"));
    assert_eq!(told, expected);
    let other = IGNORED.map(|(name, when, _)| match when {
        Set => (name, ""),
        True => (name, "false"),
        False => (name, "true"),
    });
    assert_eq!(of(&other).notices, Vec::<String>::new());
}

#[test]
fn flags_come_before_the_environment() {
    let environment = [("BACKEND_TYPE", "memcache"), ("GRPC_SERVER_USE_TLS", "true")];
    let translated = of_given(&environment, &["store", "tokens", "tls_certificate"]);
    assert_eq!(translated.refused, Vec::<String>::new());
    for name in ["store", "insecure_no_auth", "anonymous"] {
        assert_eq!(setting(&translated, name), None, "{name}");
    }
}

#[test]
fn every_translated_name_is_a_setting() {
    use clap::Args;
    let flags = crate::Settings::augment_args(clap::Command::new("serve"));
    let every = [
        ("SHADOW_MODE", "true"),
        ("QUOTA_MODE", "true"),
        ("RESPONSE_DYNAMIC_METADATA", "true"),
        ("LIMIT_RESPONSE_HEADERS_ENABLED", "true"),
        ("LOG_FORMAT", "json"),
        ("REDIS_TLS", "true"),
        ("REDIS_TLS_CACERT", "a"),
        ("REDIS_TLS_CLIENT_CERT", "b"),
        ("REDIS_TLS_CLIENT_KEY", "c"),
        ("CACHE_KEY_PREFIX", "d"),
        ("REDIS_TIMEOUT", "1s"),
    ];
    for (name, _) in of(&every).settings {
        assert!(flags.get_arguments().any(|flag| flag.get_id() == name), "{name}");
    }
}
