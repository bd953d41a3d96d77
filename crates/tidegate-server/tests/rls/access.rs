//! Who may ask, and who may give back.

use tonic::Code;

use crate::rls::start;
use crate::support::client::{Client, METHOD, channel, http, raw, request};

pub(crate) fn line(name: &str, rights: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, name.as_bytes());
    let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("[[token]]\nname = \"{name}\"\nsha256 = \"{hex}\"\nrights = [{rights}]\n")
}

#[tokio::test]
async fn calls_need_the_right_to_check_and_negative_hits_that_to_manage() {
    let tokens =
        line("checker", "\"check\"") + &line("manager", "\"check\", \"manage\"") + &line("scraper", "\"metrics\"");
    let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    std::fs::write(file.path(), tokens).unwrap();
    let running = start(|settings| settings.tokens = Some(file.path().into())).await;
    for socket in [running.server.grpc_socket().unwrap(), running.server.http_socket().unwrap()] {
        let mut client = Client::connect(socket).await;
        for (token, charged, given_back) in [
            (None, Code::Unauthenticated, Code::Unauthenticated),
            (Some("wrong"), Code::Unauthenticated, Code::Unauthenticated),
            (Some("scraper"), Code::PermissionDenied, Code::PermissionDenied),
            (Some("checker"), Code::Ok, Code::PermissionDenied),
            (Some("manager"), Code::Ok, Code::Ok),
        ] {
            for (descriptor, expected) in [("user=a", charged), ("user=a ?", charged), ("user=a -1", given_back)] {
                let asked = client.ask_as(request("files", &[descriptor]), token).await;
                let code = asked.map_or_else(|status| status.code(), |_| Code::Ok);
                assert_eq!(code, expected, "{token:?}, {descriptor}");
            }
        }
        let mut health = tonic_health::pb::health_client::HealthClient::new(channel(socket).await);
        let asked = tonic_health::pb::HealthCheckRequest { service: String::new() };
        assert!(health.check(asked).await.is_ok(), "health is open");
    }
}

#[tokio::test]
async fn negative_hits_in_json_need_the_right_to_manage_too() {
    let running = start(|settings| settings.anonymous = vec![tidegate_server::Right::Check]).await;
    let socket = running.server.http_socket().unwrap();
    let body = |hits: &str| {
        format!(r#"{{"domain": "files", "descriptors": [{{"entries": [{{"key": "user", "value": "a"}}]{hits}}}]}}"#)
    };
    assert_eq!(http(socket, "POST", "/json", &body("")).await.0, 200);
    let (status, words) = http(socket, "POST", "/json", &body(r#", "hitsAddend": 1, "isNegativeHits": true"#)).await;
    assert_eq!(status, 401, "{words}");
}

#[tokio::test]
async fn negative_hits_that_were_given_back_are_in_the_audit_log() {
    let tokens = line("manager", "\"check\", \"manage\"");
    let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    std::fs::write(file.path(), tokens).unwrap();
    let audit = file.path().with_extension("audit");
    let running = start(|settings| (settings.tokens, settings.audit) = (Some(file.path().into()), Some(audit.clone())));
    let running = running.await;
    let mut client = Client::connect(running.server.grpc_socket().unwrap()).await;
    for (domain, descriptors) in
        [("files", &["user=a"][..]), ("files", &["user=a -1", "user=b ?"]), ("edge", &["user=a -1", "user=b -2"])]
    {
        let _ = client.ask_as(request(domain, descriptors), Some("manager")).await;
    }
    drop(client);
    assert!(running.server.drain().await);
    let text = std::fs::read_to_string(&audit).unwrap();
    std::fs::remove_file(&audit).unwrap();
    let said = r#""identity":"manager","action":"refund","outcome":"done""#;
    let refunds = text.lines().filter(|line| line.contains(said) && line.contains(r#""peer":"127.0.0.1:"#));
    assert_eq!((refunds.count(), text.lines().count()), (3, 3), "{text}");
}

/// Envoy names its cluster where others name a host.
#[tokio::test]
async fn the_authority_of_a_call_can_be_any_name() {
    let running = start(|_| {}).await;
    let socket = running.server.grpc_socket().unwrap();
    let message = [&[0, 0, 0, 0, 0][..]].concat();
    assert_eq!(raw(socket, METHOD, &message).await, Some(Code::InvalidArgument as u32), "an empty message");
    let channel = tonic::transport::Channel::from_shared(format!("http://{socket}")).unwrap();
    let channel = channel.origin("http://rate_limit_cluster".parse().unwrap()).connect().await.unwrap();
    assert!(Client::over(channel).ask(request("files", &["user=a"])).await.is_ok());
}
