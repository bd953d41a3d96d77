//! Every kind of caller, and what each may do.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::run::peer::Peer;

const RIGHTS: [Right; 5] = [Right::Check, Right::Manage, Right::View, Right::Admin, Right::Metrics];

fn file(text: &str) -> Result<TokensFile, tidegate_config::Report> {
    let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    std::fs::write(file.path(), text).unwrap();
    tidegate_config::document::load(file.path())
}

fn token(name: &str, secret: &str, rights: &str) -> String {
    format!("[[token]]\nname = {name:?}\nsha256 = \"{}\"\nrights = [{rights}]\n", Digest::of(secret.as_bytes()))
}

fn settings() -> Settings {
    Settings { tokens: Some("tokens.toml".into()), ..Settings::default() }
}

/// What a caller may do, by the first letters of the rights.
fn rights(access: &Access, protocol: Protocol, link: &Link, credential: Option<Credential<'_>>) -> String {
    let caller = Caller { protocol, link, credential, page: None };
    let may = |right: &Right| access.decide(&caller, *right).is_ok();
    RIGHTS.iter().filter(|right| may(right)).map(|right| &right.name()[..2]).collect::<Vec<_>>().join(" ")
}

fn secret<'a>(user: Option<&'a str>, secret: &'a str) -> Option<Credential<'a>> {
    Some(Credential::Secret { user: user.map(str::as_bytes), secret: secret.as_bytes() })
}

#[test]
fn a_caller_has_the_rights_of_its_token_on_every_wire() {
    let text = token("gateway", "one", "\"check\"") + &token("robot", "two", "\"manage\", \"metrics\"");
    let settings = Settings { admin_token: Some("all".into()), resp_password: Some("pass".into()), ..settings() };
    let access = Access::new(&settings, file(&text).unwrap());
    let link = Link::new(Peer::Unix);
    let by = |protocol, credential| rights(&access, protocol, &link, credential);
    for protocol in [Protocol::Http, Protocol::Grpc, Protocol::Resp] {
        assert_eq!(by(protocol, None), "");
        assert_eq!(by(protocol, secret(None, "one")), "ch");
        assert_eq!(by(protocol, secret(Some("gateway"), "one")), "ch");
        assert_eq!(by(protocol, secret(Some("default"), "one")), "ch");
        assert_eq!(by(protocol, secret(Some("robot"), "one")), "");
        assert_eq!(by(protocol, secret(None, "two")), "ma me");
        assert_eq!(by(protocol, secret(None, "all")), "ch ma vi ad me");
        assert_eq!(by(protocol, secret(None, "")), "");
        assert_eq!(by(protocol, Some(Credential::Unreadable)), "");
    }
    assert_eq!(by(Protocol::Resp, secret(None, "pass")), "ch ma");
    assert_eq!(by(Protocol::Resp, secret(Some("other"), "pass")), "");
    assert_eq!(by(Protocol::Http, secret(None, "pass")), "", "the password is for RESP only");
}

#[test]
fn anonymous_callers_have_all_rights_or_none_unless_told() {
    let link = Link::new(Peer::Unix);
    let anonymous = |settings: Settings| {
        let access = Access::new(&settings, TokensFile::default());
        [Protocol::Http, Protocol::Resp].map(|protocol| rights(&access, protocol, &link, None))
    };
    let all = "ch ma vi ad me";
    assert_eq!(anonymous(Settings::default()), [all, all]);
    assert_eq!(anonymous(settings()), ["", ""]);
    assert_eq!(anonymous(Settings { admin_token: Some("x".into()), ..Settings::default() }), ["", ""]);
    assert_eq!(anonymous(Settings { admin_token: Some("".into()), ..Settings::default() }), [all, all]);
    assert_eq!(anonymous(Settings { resp_password: Some("x".into()), ..Settings::default() }), [all, ""]);
    assert_eq!(anonymous(Settings { tls_client_ca: Some("x".into()), ..Settings::default() }), ["", ""]);
    assert_eq!(anonymous(Settings { anonymous: vec![Right::Check, Right::Metrics], ..settings() }), ["ch me", "ch me"]);
}

#[test]
#[cfg(feature = "certificates")]
fn a_certificate_may_check_unless_the_file_says_otherwise() {
    use crate::run::peer::Certificate;

    let text = "[[certificate]]\nname = \"dns:ops.corp\"\nrights = [\"admin\"]\n";
    let access = Access::new(&settings(), file(text).unwrap());
    let certificate = |name: &str| {
        let mut parameters = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        parameters.distinguished_name.push(rcgen::DnType::CommonName, "some name");
        let signed = parameters.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
        Link { peer: Peer::Unix, certificate: Some(std::sync::Arc::new(Certificate::read(signed.der()))) }
    };
    let (ops, other) = (certificate("ops.corp"), certificate("other.corp"));
    assert_eq!(ops.certificate.as_ref().unwrap().names(), ["dns:ops.corp", "cn:some name"]);
    assert_eq!(rights(&access, Protocol::Http, &ops, None), "ma vi ad", "admin includes view and manage");
    assert_eq!(rights(&access, Protocol::Resp, &other, None), "ch");
    assert_eq!(rights(&access, Protocol::Http, &ops, secret(None, "wrong")), "", "a wrong token is not made up for");
    let page = Page { fetch_site: Some(b"cross-site"), ..Page::default() };
    let caller = Caller { protocol: Protocol::Http, link: &ops, credential: None, page: Some(page) };
    assert!(matches!(access.decide(&caller, Right::Admin), Err(Denied::CrossSite)), "browsers add certificates");
    assert!(Certificate::read(b"no certificate").names().is_empty());
}

#[test]
fn tokens_are_exchanged_while_the_server_runs() {
    let access = Access::new(&settings(), file(&token("a", "one", "\"check\"")).unwrap());
    let (link, generation) = (Link::new(Peer::Unix), access.generation());
    let digest = Digest::of(b"one");
    assert_eq!(rights(&access, Protocol::Resp, &link, Some(Credential::Proven(&digest))), "ch");
    access.set_tokens(file(&token("a", "two", "\"check\"")).unwrap());
    assert_ne!(access.generation(), generation);
    assert_eq!(rights(&access, Protocol::Resp, &link, Some(Credential::Proven(&digest))), "");
    assert_eq!(rights(&access, Protocol::Resp, &link, secret(None, "two")), "ch");
}

#[test]
fn errors_of_a_tokens_file_are_told_with_their_lines() {
    let good = token("a", "one", "\"check\"");
    for (text, line, words) in [
        (good.clone() + &good, 5, "the name \"a\" is there twice"),
        (good.replace("sha256 = \"", "sha256 = \"x"), 3, "64 hexadecimal digits"),
        (good.replace("rights", "right"), 4, "unknown field"),
        (good.replace("\"check\"", "\"chekc\""), 4, "chekc"),
        (good.replace("name = \"a\"", "name = \"a b\""), 2, "a name has"),
        (format!("{good}[[certificate]]\nname = \"gateway\"\nrights = []\n"), 6, "uri:, dns: or cn:"),
    ] {
        let report = file(&text).unwrap_err();
        let told = report.to_string();
        assert_eq!(report.diagnostics()[0].place().map(|place| place.line), Some(line), "{told}");
        assert!(told.contains(words), "{words}: {told}");
    }
    assert!(file("").is_ok(), "no tokens are none");
}
