//! `tidegate simulate` as people and scripts use it.

use std::fs;
use std::process::Output;

use serde_json::Value;

use crate::server::running::{Folder, ask};

fn simulate(arguments: &[&str]) -> Output {
    let arguments: Vec<&str> = ["simulate"].iter().chain(arguments).copied().collect();
    ask(&arguments)
}

fn said(arguments: &[&str]) -> String {
    let output = simulate(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_first_run_shows_the_boundary_burst_and_what_to_try_next() {
    let output = said(&[]);
    assert!(output.contains("The fixed window let 20 pass within 1s, though its limit is 10"), "{output}");
    assert!(output.contains("fixed window 10/s           30 53.6%       26 46.4%       17      20 +100%"), "{output}");
    // Every command that it proposes can be run.
    let folder = Folder::new();
    let proposals = output.lines().filter_map(|line| line.strip_prefix("  tidegate simulate "));
    let mut tried = 0;
    for proposal in proposals.filter(|proposal| *proposal != "--help") {
        let proposal = proposal.split(" #").next().unwrap().replace("picture.svg", &folder.path("picture.svg"));
        let words = proposal.split('\'').enumerate().flat_map(|(index, part)| match index % 2 {
            0 => part.split_whitespace().collect::<Vec<_>>(),
            _ => vec![part],
        });
        said(&words.collect::<Vec<_>>());
        tried += 1;
    }
    assert_eq!(tried, 5);
    assert!(fs::read_to_string(folder.path("picture.svg")).unwrap().contains("fixed window 10/s"));
}

#[test]
fn machines_get_json_and_csv() {
    let arguments = ["--limit", "10/s", "--limit", "sliding-log 5/10s", "--algorithm", "fixed", "--traffic"];
    let arguments = [&arguments[..], &["alice: poisson 20/s", "--for", "30s", "--seed", "9"]].concat();
    let json: Value = serde_json::from_str(&said(&[&arguments[..], &["--json"]].concat())).unwrap();
    let limits: Vec<&str> = json["limits"].as_array().unwrap().iter().map(|it| it["limit"].as_str().unwrap()).collect();
    assert_eq!(limits, ["fixed 10/s", "sliding-log 5/10s"]);
    assert_eq!((&json["seed"], &json["length_us"]), (&9.into(), &30_000_000.into()));
    for limit in json["limits"].as_array().unwrap() {
        let requests = |of: &str| limit[of]["requests"].as_u64().unwrap();
        assert_eq!(Some(requests("passed") + requests("refused")), json["offered"]["passed"]["requests"].as_u64());
        let passed = limit["series"]["passed"].as_array().unwrap();
        assert_eq!(passed.iter().map(|units| units.as_u64().unwrap()).sum::<u64>(), requests("passed"));
        assert_eq!(limit["worst_window"]["client"], "alice");
    }
    assert_eq!(json["limits"][1]["worst_window"]["units"], 5);

    let csv = said(&[&arguments[..], &["--csv"]].concat());
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some("from_us,offered,fixed 10/s,sliding-log 5/10s"));
    let rows: Vec<Vec<u64>> = lines.map(|line| line.split(',').map(|cell| cell.parse().unwrap()).collect()).collect();
    let offered: u64 = rows.iter().map(|row| row[1]).sum();
    assert_eq!(Some(offered), json["offered"]["passed"]["units"].as_u64());
    assert_eq!(csv, said(&[&arguments[..], &["--csv"]].concat()), "the same seed, the same traffic");
}

#[test]
#[cfg(feature = "png")]
fn a_picture_comes_as_svg_and_as_png() {
    let folder = Folder::new();
    let (svg, png) = (folder.path("picture.svg"), folder.path("picture.png"));
    said(&["--algorithm", "leaky", "--svg", &svg, "--png", &png]);
    assert!(fs::read_to_string(svg).unwrap().starts_with("<svg"));
    assert!(fs::read(png).unwrap().starts_with(b"\x89PNG\r\n\x1a\n"));
}

#[test]
fn requests_that_last_are_in_flight_and_may_make_debt() {
    let traffic = "2/s cost 4 actual 9 lasting 3s";
    let arguments = ["--limit", "in-flight 4 for 1min", "--limit", "sliding-log 20/10s", "--traffic", traffic];
    let arguments = [&arguments[..], &["--for", "1min"]].concat();
    let text = said(&arguments);
    assert!(text.contains("in-flight 4 for 1min: 80 of 120 admitted, up to 4 in flight"), "{text}");
    assert!(text.contains("most in flight:") && text.contains("longest debt:"), "{text}");
    let json: Value = serde_json::from_str(&said(&[&arguments[..], &["--json"]].concat())).unwrap();
    assert_eq!((&json["offered"]["most_in_flight"], &json["limits"][0]["most_in_flight"]), (&6.into(), &4.into()));
    assert_eq!(json["limits"][0]["longest_debt_us"], 0);
    assert!(json["limits"][1]["longest_debt_us"].as_u64() > Some(0));
    let in_flight = json["limits"][0]["series"]["in_flight"].as_array().unwrap();
    assert!(in_flight.iter().all(|number| number.as_u64() <= Some(4)));
}

#[test]
fn so_many_requests_are_so_many_requests() {
    let output = said(&["--traffic", "poisson 1000/s", "--requests", "12345"]);
    assert!(output.contains("offered 12,345"), "{output}");
}

#[test]
fn what_cannot_be_simulated_says_why() {
    for (arguments, words) in [
        (&["--traffic", "poison 5/s"][..], "expected constant 50/s, poisson 50/s"),
        (&["--limit", "5/fortnight"], "expected a unit"),
        (&["--algorithm", "guess"], "expected token-bucket, leaky"),
        (&["--for", "ever"], "expected a time such as 90s"),
        (&["--for", "1s", "--requests", "5"], "cannot be used with"),
        (&["--json", "--csv"], "cannot be used with"),
        (&["--limit", "5/s", "--traffic", "1/s cost 9"], "can never pass 5/s"),
        (&["--traffic", "1/s until 5s", "--requests", "9"], "the traffic ends after 5 of 9 requests"),
        (&["--traffic", "5/s actual 3"], "such as actual 3 lasting 2s"),
        (&["--traffic", "1000/s lasting 1day"], "have at most 1000000"),
        (&["--svg", "/no/such/folder/picture.svg"], "cannot write \"/no/such/folder/picture.svg\""),
        (&["--traffic", "900 clients: 1/s", "--traffic", "200 clients: 1/s"], "1100 clients are too many"),
    ] {
        let output = simulate(arguments);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && errors.contains(words), "{arguments:?}: {errors}");
    }
}
